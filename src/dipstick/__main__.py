"""``python -m dipstick``: the same as the command ``dipstick``."""

import sys

from dipstick.cli import main

if __name__ == "__main__":
    sys.exit(main())
