"""The C extension: built where there is a compiler, used where it fits, and nothing is missing without it."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lockstep import extension
from tests.support.cases import each_case

ROOT = Path(__file__).resolve().parents[2]
HAS_COMPILER = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
USED = """
import sys
if "--hidden" in sys.argv:
    sys.modules["lockstep.broker.produce._fast_path"] = None
from lockstep import extension
from lockstep.broker.produce import compiled_fast_path as chosen
print(extension.load()[1], chosen.CONNECTION.__name__, chosen.FAST_PATH.__name__, sep="|")
print("buffer_updated" in vars(chosen.CompiledConnection))
"""


@pytest.fixture
def builder() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "requirements" / "build_extension.py"))


@pytest.fixture(autouse=True)
def unknown() -> Any:
    """Nothing is known of the extension before a test, nor after it."""
    extension.load.cache_clear()
    yield
    extension.load.cache_clear()


def run(*words: str, **environment: str) -> list[str]:
    command = [sys.executable, "-c", USED, *words]
    where = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        command, env=where, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_it_is_not_used_where_it_is_not_wanted() -> None:
    found = run(LOCKSTEP_PURE="1")
    assert found == ["pure Python (LOCKSTEP_PURE is set)|Connection|ProduceFastPath", "False"]


def test_without_it_the_classes_are_python() -> None:
    found = run("--hidden", LOCKSTEP_PURE="0")
    assert found == ["pure Python (the extension is not built)|Connection|ProduceFastPath", "False"]


@pytest.mark.skipif(extension.load()[0] is None, reason="`make extension` builds it")
def test_where_it_is_built_it_is_used() -> None:
    found = run(LOCKSTEP_PURE="")
    assert found == ["compiled Produce path|CompiledConnection|CompiledFastPath", "True"]


@each_case(
    ("digest", "words"),
    [
        ("of another source", "run `make extension`"),
        ("", "run `make extension`"),
        (extension.source_digest(), "compiled Produce path"),
    ],
)
def test_one_of_another_source_is_not_used(digest: str, words: str) -> None:
    module = ModuleType(extension.MODULE)
    module.SOURCE_DIGEST = digest  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, extension.MODULE, module)
        patch.delenv(extension.VARIABLE, raising=False)
        extension.load.cache_clear()
        found, text = extension.load()
    assert words in text
    assert (found is module) == (digest == extension.source_digest())


@HAS_COMPILER
def test_what_is_built_knows_its_source(builder: dict[str, Any], tmp_path: Path) -> None:
    built = builder["build"](tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [built.name == builder["file_name"]() and built.name]
    code = f"import sys; sys.path[0] = {str(tmp_path)!r}; import _fast_path; print(_fast_path.SOURCE_DIGEST)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == extension.source_digest()


@HAS_COMPILER
def test_it_compiles_without_a_warning(builder: dict[str, Any], tmp_path: Path) -> None:
    builder["build"](tmp_path, options=["-Werror", "-Wshadow", "-Wno-missing-field-initializers"])


def test_without_a_compiler_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = SimpleNamespace(**runpy.run_path(str(ROOT / "requirements" / "build_extension.py")))
    before = [(each, each.stat().st_mtime_ns) for each in (ROOT / "broker" / "produce").glob("*.so")]
    monkeypatch.setenv("LDSHARED", "/nowhere/cc -shared")
    assert builder.main([]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line == (
        "The Produce path runs as pure Python: its C extension cannot be built "
        "(no C compiler: /nowhere/cc: No such file or directory)."
    )
    assert builder.main(["--required"]) == 1
    assert [(each, each.stat().st_mtime_ns) for each in (ROOT / "broker" / "produce").glob("*.so")] == before


@HAS_COMPILER
def test_a_source_that_does_not_compile_leaves_nothing(builder: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(builder["CannotBuild"], match="error"):
        builder["build"](tmp_path, options=["-include", "/nowhere/header.h"])
    assert list(tmp_path.iterdir()) == []
