"""What a broker that is killed now would leave: its files, copied while it runs."""

from __future__ import annotations

import shutil
from pathlib import Path

from lockstep.broker.server import Broker


def copy_as_killed(broker: Broker, directory: Path) -> None:
    """Copy its data there; of a broker that was stopped, what it left."""
    for group in broker.groups.values():
        group.log.prepare_now()  # else a file that is being made may go while it is copied
    shutil.copytree(broker.settings.directory, directory)
