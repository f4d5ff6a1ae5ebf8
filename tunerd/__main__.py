"""``python -m tunerd`` is ``tunerd``."""

from tunerd.cli import main

main()
