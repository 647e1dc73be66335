"""docs/storage_rules.md names code and tests; every name in it exists."""

from __future__ import annotations

import re
from collections.abc import Container
from pathlib import Path

from tests.documents import has
from tests.sim.plants import PLANTS
from tests.storage.log.planted_faults import FAULTS as CRASH_FAULTS
from tests.storage.raft.planted_faults import FAULTS as CORE_FAULTS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "storage_rules.md"
MODEL = ROOT / "tests" / "model" / "runs.py"
NAMED = re.compile(r"`([a-z]+):([\w-]+)`|`([\w/]+\.(?:py|txt))(?::([\w.]+))?`")


def _file(path: str) -> Path:
    tests = "test_" in path or path.endswith(".txt")
    below = ROOT / ("tests/storage" if tests else "storage") / path
    return below if below.exists() else ROOT / path


def _is_planted(kind: str, name: str) -> bool:
    if kind == "model":
        return f'"{name}"' in MODEL.read_text()
    planted: dict[str, Container[str]] = {"sim": PLANTS, "crash": CRASH_FAULTS, "core": CORE_FAULTS}
    return name in planted[kind]


def missing(text: str) -> list[str]:
    """The names in a document that nothing has."""
    found = []
    for kind, plant, file, name in NAMED.findall(text):
        if kind:
            if not _is_planted(kind, plant):
                found.append(f"{kind}:{plant}")
        elif not _file(file).exists() or (name and not has(_file(file), name)):
            found.append(f"{file}:{name}")
    return found


def test_every_name_exists() -> None:
    text = DOCUMENT.read_text()
    assert len(NAMED.findall(text)) > 150
    assert missing(text) == []


def test_a_name_that_nothing_has_is_seen() -> None:
    text = (
        "`sim:no-such-plant` `model:nothing` `log_group.py:LogGroup.nothing` `nowhere.py` "
        "`waiters.py:Waiters.fail`"
    )
    assert missing(text) == [
        "sim:no-such-plant",
        "model:nothing",
        "log_group.py:LogGroup.nothing",
        "nowhere.py:",
    ]
