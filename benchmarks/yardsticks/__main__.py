"""See :mod:`benchmarks.yardsticks.program`: worker processes import that, and cannot this."""

import sys

from benchmarks.yardsticks.program import main

if __name__ == "__main__":
    sys.exit(main())
