"""The import contracts that list storage's modules by hand name every one of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.support.cases import each_case

ROOT = Path(__file__).resolve().parent.parent
HAND_LISTED = {
    "lockstep.storage.raft": "The Raft core knows nothing of storage but its words",
    "lockstep.storage.log": "The data log knows nothing of Raft or of those who drive it",
}
WORDS = "lockstep.storage.types"
"""What both may import."""


def children(package: Path) -> set[str]:
    """Modules and packages right below a package, by their dotted names."""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    return {f"lockstep.{package.name}.{name}" for name in modules | packages}


def forbidden(text: str, source: str) -> set[str]:
    """What the hand-listed contract of `source` forbids, in the text of a pyproject.toml."""
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in contracts if each["name"] == HAND_LISTED[source]]
    assert contract["source_modules"] == [source]
    return set(contract["forbidden_modules"])


@each_case("source", sorted(HAND_LISTED))
def test_no_module_is_forgotten(source: str) -> None:
    listed = forbidden((ROOT / "pyproject.toml").read_text(encoding="utf-8"), source)
    assert listed == children(ROOT / "storage") - {source, WORDS} | {"lockstep.broker"}


def test_a_new_module_and_a_new_package_are_seen(tmp_path: Path) -> None:
    package = tmp_path / "storage"
    (package / "depth").mkdir(parents=True)
    for name in ("__init__.py", "new.py", "depth/__init__.py", "depth/below.py"):
        (package / name).touch()
    assert children(package) == {"lockstep.storage.new", "lockstep.storage.depth"}
