"""`python -m tests.power`: see `campaign`. Ends its brokers and disks also when it is itself told to end."""

import signal
import sys

from tests.power.campaign import main

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
