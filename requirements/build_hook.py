"""Adds to what is built what is no source file: the commit, `lockstep/commit.txt`, where the source is a
checkout; and to a wheel the C extension, where there is a compiler.

Refuses a source without the linked packages, of which the build would say nothing.
"""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the commit to wheels and sdists; an sdist has it already, so a wheel made from it does too."""

    PLUGIN_NAME = "custom"
    _directory: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        package = root / "lockstep"
        if problem := runpy.run_path(str(package / "linked_packages.py"))["missing_links"](package):
            raise SystemExit(f"lockstep: {problem}")
        if version == "editable":
            return
        self._directory = tempfile.TemporaryDirectory(prefix="lockstep-build-")
        temporary = Path(self._directory.name)
        info = runpy.run_path(str(package / "build_info.py"))
        file = package / info["COMMIT_FILE"]
        if not file.exists():
            commit = info["read_commit"](file, root / ".git")
            file = temporary / file.name
            file.write_text(f"{commit}\n", encoding="utf-8")
            build_data["force_include"][str(file)] = f"lockstep/{file.name}"
        if self.target_name == "wheel":
            self._add_extension(root, temporary, build_data)

    def _add_extension(self, root: Path, temporary: Path, build_data: dict[str, Any]) -> None:
        """The wheel is for this interpreter then; without a compiler it is pure, and complete."""
        builder = runpy.run_path(str(root / "requirements" / "build_extension.py"))
        try:
            built = builder["build"](temporary, root)
        except builder["CannotBuild"] as error:
            self.app.display_info(f"lockstep: a wheel of Python alone ({error})")
            return
        build_data["force_include"][str(built)] = str(builder["SOURCE"].with_name(built.name))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._directory is not None:
            self._directory.cleanup()
