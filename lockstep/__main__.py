"""`python -m lockstep`: the command without its script."""

import sys

from lockstep.cli import main

if __name__ == "__main__":
    sys.exit(main())
