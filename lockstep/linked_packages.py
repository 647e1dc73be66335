"""Checks that the packages which `lockstep/` of a checkout links to exist.

A git without `core.symlinks` and a zip archive that pip unpacks leave a small file instead of each
symbolic link. The build hook and the `lockstep` command use this module, so it imports nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

LINKED: Final = ("broker", "player", "protocol", "storage")


def missing_links(package: Path) -> str | None:
    """Returns the problem and its remedy in one line; None where each of the four is a directory."""
    missing = [f"lockstep/{name}" for name in LINKED if not (package / name).is_dir()]
    if not missing:
        return None
    return (
        f"no directory: {', '.join(missing)}; this copy was made without symbolic links. In a clone run "
        "`git config core.symlinks true` and `git checkout lockstep`; otherwise install the wheel"
    )
