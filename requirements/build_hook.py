"""Writes the commit into what is built, where the source is a checkout: `lockstep/commit.txt`."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the file to wheels and sdists; an sdist has it already, so that a wheel made from it does too."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        info = runpy.run_path(str(root / "lockstep" / "build_info.py"))
        if (root / "lockstep" / info["COMMIT_FILE"]).exists():
            return
        commit = info["_head"](root / ".git") if (root / ".git").exists() else info["UNKNOWN"]
        file = Path(tempfile.mkdtemp(prefix="lockstep-commit-")) / info["COMMIT_FILE"]
        file.write_text(f"{commit}\n", encoding="utf-8")
        build_data["force_include"][str(file)] = f"lockstep/{info['COMMIT_FILE']}"
