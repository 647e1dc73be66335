"""`python -m tests.torture --runs 100`: real clusters under faults, judged by the history checker."""

from __future__ import annotations

import sys

from tests.torture.run import main

if __name__ == "__main__":
    sys.exit(main())
