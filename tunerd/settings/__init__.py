"""Settings: the only room that reads files and environment variables.

:mod:`~tunerd.settings.model` says what can be set, :mod:`~tunerd.settings.load` reads
``tunerd.toml``, the environment over it and secrets from files, and
:mod:`~tunerd.settings.studies` reads the folder of studies (and is imported only then, for it
brings numpy). Every mistake is reported at once, as
:class:`~tunerd.errors.MisconfiguredError`.
"""

from tunerd.settings.load import dump_settings, is_there, load_settings, restore_settings
from tunerd.settings.model import Settings

__all__ = ["Settings", "dump_settings", "is_there", "load_settings", "restore_settings"]
