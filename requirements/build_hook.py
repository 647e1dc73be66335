"""Writes the commit into what is built, where the source is a checkout: `lockstep/commit.txt`.

Refuses a source without the linked packages, of which the build would say nothing.
"""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the file to wheels and sdists; an sdist has it already, so that a wheel made from it does too."""

    PLUGIN_NAME = "custom"
    _directory: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        package = root / "lockstep"
        if problem := runpy.run_path(str(package / "linked_packages.py"))["missing_links"](package):
            raise SystemExit(f"lockstep: {problem}")
        info = runpy.run_path(str(package / "build_info.py"))
        file = package / info["COMMIT_FILE"]
        if version == "editable" or file.exists():
            return
        commit = info["read_commit"](file, root / ".git")
        self._directory = tempfile.TemporaryDirectory(prefix="lockstep-commit-")
        file = Path(self._directory.name) / file.name
        file.write_text(f"{commit}\n", encoding="utf-8")
        build_data["force_include"][str(file)] = f"lockstep/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._directory is not None:
            self._directory.cleanup()
