"""The archive of the connector that docs/spark_pipelines.md has users pack for spark-submit."""

from __future__ import annotations

import shlex
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_DOCUMENT: Final = ROOT / "docs" / "spark_pipelines.md"
_COMMAND: Final = "zip -qr connector.zip "


def pack_documented(archive: Path) -> None:
    """Packs the files and folders that the document's `zip` command names into `archive`."""
    (line,) = [each for each in _DOCUMENT.read_text().splitlines() if each.startswith(_COMMAND)]
    with zipfile.ZipFile(archive, "w") as packed:
        for name in shlex.split(line.removeprefix(_COMMAND), comments=True):
            named = ROOT / name
            for path in named.rglob("*.py") if named.is_dir() else [named]:
                packed.write(path, path.relative_to(ROOT))
