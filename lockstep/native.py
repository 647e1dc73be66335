"""Compiled modules for LOCKSTEP_NATIVE=1: the output of `make native` replaces the same modules' Python.

Owns: the import finder, and the check that the compiled modules fit the present sources. The compiled
modules are in `.native` beside the packages, with a manifest of the sources' checksums; the packages
themselves stay pure and complete, and are what runs without the variable (decision 29).
Invariants: all of the compiled modules or none, because they know each other's memory layout; none after
one of them was imported as Python.
Does not compile: that is `requirements/build_native.py`, which has the list of modules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from lockstep.failures import CommandFailed

VARIABLE: Final = "LOCKSTEP_NATIVE"
ROOT: Final = Path(__file__).resolve().parent.parent
DIRECTORY: Final = ROOT / ".native"
MANIFEST: Final = "manifest.json"
SUFFIX: Final = EXTENSION_SUFFIXES[0]
"""The file suffix, which names the interpreter of the compilation."""


def checksum(source: Path) -> str:
    """Returns the checksum of a source, as in the manifest."""
    import hashlib

    return hashlib.sha256(source.read_bytes()).hexdigest()


def source_of(root: Path, module: str) -> Path:
    return root.joinpath(*module.split(".")).with_suffix(".py")


class CompiledModules:
    """An import finder for the modules of a manifest; all others are found as usual."""

    def __init__(self, directory: Path, names: Sequence[str], shared: str) -> None:
        self._files = {name: directory.joinpath(*name.split(".")) for name in names}
        self._files[shared] = directory / shared

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the compiled file of a module, or None for a module without one."""
        found = self._files.get(name)
        return None if found is None else spec_from_file_location(name, f"{found}{SUFFIX}")


def enable(directory: Path = DIRECTORY, root: Path = ROOT) -> int:
    """Makes imports use the compiled modules from now on; returns their number.

    Raises CommandFailed where there are none, or they are of other sources or another Python.
    """
    import json  # the command's start imports what it needs

    try:
        manifest = json.loads((directory / MANIFEST).read_text())
    except FileNotFoundError:
        raise CommandFailed(
            f"{VARIABLE}=1, but nothing is compiled: run `make native`, or unset it"
        ) from None
    sources: Mapping[str, str] = manifest["sources"]
    if manifest["suffix"] != SUFFIX:
        raise CommandFailed(
            f"{VARIABLE}=1, but {directory.name} is for another Python: run `make native` again"
        )
    for name, expected in sources.items():
        source = source_of(root, name)
        if not source.exists() or checksum(source) != expected:
            raise CommandFailed(
                f"{VARIABLE}=1, but {name} has changed since it was compiled: "
                "run `make native` again, or unset it"
            )
        if name in sys.modules:
            raise RuntimeError(f"{name} was imported before the compiled modules were enabled")
    sys.meta_path.insert(0, CompiledModules(directory, list(sources), manifest["shared"]))
    return len(sources)


def enable_if_requested() -> int:
    """Calls `enable` if LOCKSTEP_NATIVE=1 is set. Raises CommandFailed for values other than 0 and 1."""
    value = os.environ.get(VARIABLE, "")
    if value in ("", "0"):
        return 0
    if value != "1":
        raise CommandFailed(f"{VARIABLE} is 1 or 0, not {value!r}")
    return enable()
