"""``python -m crystal_rl``: the same as the command ``crystal-rl``."""

import sys

from crystal_rl.cli import main

if __name__ == "__main__":
    sys.exit(main())
