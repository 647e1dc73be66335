"""The compiled modules: never those of other sources, all or none, and the same tests pass with them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lockstep import native
from lockstep.failures import CommandFailed
from tests.support.cases import each_case

ROOT = native.ROOT
SAME_TESTS = (
    "tests/protocol/test_frame_reader.py",
    "tests/protocol/records/test_batch.py",
    "tests/storage/raft",
    "tests/storage/log/test_batch_index.py",
    "tests/storage/log/test_index_file.py",
    "tests/storage/log/test_data_log.py",
    "tests/storage/log/test_format.py",
    "tests/storage/log/test_marker.py",
    "tests/storage/log/test_recent_frames.py",
    "tests/storage/log/test_shared_reads.py",
    "tests/storage/log/test_tail_cache.py",
    "tests/broker/produce/test_appender.py",
    "tests/broker/produce/test_batch_validation.py",
    "tests/broker/produce/test_marker_batches.py",
)
NOT_COMPILED = (
    "a_fault_",  # planted into classes, which compiled code does not look into
    "segment_header_comes_back",  # asks the class for __slots__
    "file_brings_both_back",  # likewise
    "another_format_s_file",  # replaces a constant of a module
    "what_frames_really_take",  # measures Python's objects; compiled ones are smaller
    "kind_of_frame_that_is_not_known",  # makes a frame with a kind that is no FrameKind
    "former_leader_answers_nothing",  # replaces a property of a class
    "new_leader_asks_for_what_came_before",  # likewise
    "unknown_producer_of_transaction_version_2",  # likewise
    "what_storage_refuses_has_a_kafka_error",  # gives an object a method of its own
    "transactions_end_on_a_full_disk",  # likewise
    "ends_that_the_log_does_not_take",  # likewise
    "one_refusal_is_everybodys",  # likewise
    "who_cannot_know_the_locks",  # replaces a property of a class
)
"""Parts of names of tests that reach into what is compiled."""


EXAMPLES = ("broker/produce/appender.py", "protocol/frame_reader.py", "storage/raft/raft.py")


def build_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_native", ROOT / "requirements" / "build_native.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(root: Path, name: str = "fresh.module", suffix: str = native.SUFFIX) -> Path:
    """A manifest of one module, whose source is there."""
    source = native.source_of(root, name)
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("x = 1\n")
    directory = root / ".native"
    directory.mkdir()
    manifest = {"suffix": suffix, "shared": "shared__mypyc", "sources": {name: native.checksum(source)}}
    (directory / native.MANIFEST).write_text(json.dumps(manifest))
    return directory


def test_what_fits_is_found_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    assert native.enable(built(tmp_path), tmp_path) == 1
    finder = sys.meta_path[0]
    assert isinstance(finder, native.CompiledModules)
    found, shared = finder.find_spec("fresh.module"), finder.find_spec("shared__mypyc")
    assert found is not None and shared is not None
    assert found.origin == str(tmp_path / ".native" / "fresh" / f"module{native.SUFFIX}")
    assert shared.origin == str(tmp_path / ".native" / f"shared__mypyc{native.SUFFIX}")
    assert finder.find_spec("fresh") is None
    assert finder.find_spec("fresh.other") is None


def test_what_was_not_compiled_is_not_replaced_silently(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="nothing is compiled: run `make native`"):
        native.enable(tmp_path / ".native", tmp_path)


@pytest.mark.parametrize("change", ["another text", "gone"])
def test_other_sources_are_refused(tmp_path: Path, change: str) -> None:
    directory = built(tmp_path)
    source = native.source_of(tmp_path, "fresh.module")
    if change == "gone":
        source.unlink()
    else:
        source.write_text("x = 2\n")
    with pytest.raises(CommandFailed, match=r"fresh\.module has changed .*run `make native` again"):
        native.enable(directory, tmp_path)


def test_another_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="for another Python"):
        native.enable(built(tmp_path, suffix=".cpython-27.so"), tmp_path)


def test_a_module_that_is_there_already_is_not_mixed_in(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="imported before"):
        native.enable(built(tmp_path, "lockstep.native"), tmp_path)


@pytest.mark.parametrize("value", ["", "0"])
def test_pure_python_by_default(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, value)
    before = list(sys.meta_path)
    assert native.enable_if_requested() == 0
    assert sys.meta_path == before


def test_an_invalid_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "yes")
    with pytest.raises(CommandFailed, match="LOCKSTEP_NATIVE is 1 or 0, not 'yes'"):
        native.enable_if_requested()


def test_every_module_that_is_compiled_is_there_and_read_rightly() -> None:
    build = build_script()
    paths = build.modules()
    assert {f"lockstep/{name}" for name in EXAMPLES} <= set(paths)
    for pattern in build.WANTED:
        assert list(ROOT.glob(pattern)), pattern
    for path in build.LEFT_OUT:
        assert (ROOT / path).exists(), path
    for path in paths:
        assert build.misread((ROOT / path).read_text()) == [], path


def test_one_name_for_two_exceptions_is_found() -> None:
    text = "def f():\n try: g()\n except A as e: 1\n except B as e: 2\n"
    assert build_script().misread(text) == ["f: `e` is A and B"]
    assert build_script().misread(text.replace("B as e", "B as other")) == []
    assert build_script().misread(text.replace("B as e", "A as e")) == []


def test_a_default_of_an_exception_is_found() -> None:
    text = "class E(ValueError):\n    'why'\n    ahead = False\n"
    assert build_script().misread(text) == ["E: a default"]
    assert build_script().misread(text.replace("ValueError", "Plain")) == []
    assert build_script().misread((ROOT / "broker/produce/producer_state.py").read_text()) != []


def test_a_protocol_that_is_checked_at_run_time_is_found() -> None:
    text = "@runtime_checkable\nclass P(Protocol):\n    pass\n"
    assert build_script().misread(text) == ["P: checked at run time"]
    assert build_script().misread(text.replace("@runtime_checkable", "@final")) == []
    assert build_script().misread((ROOT / "storage/types.py").read_text()) == [
        "RunMachine: checked at run time"
    ]


@each_case(
    ("text", "found"),
    [
        ("for a in b:\n try:\n  if a: break\n finally: c()\n", ["line 3: break inside try/finally or with"]),
        (
            "while a:\n try: b()\n except E: continue\n finally: c()\n",
            ["line 3: continue inside try/finally or with"],
        ),
        ("while a:\n with b:\n  continue\n", ["line 3: continue inside try/finally or with"]),
        (
            "while a:\n try:\n  for b in c: d()\n  else: break\n finally: e()\n",
            ["line 4: break inside try/finally or with"],
        ),
        ("try:\n while a: break\nfinally: b()\n", []),
        ("while a:\n try: b()\n finally: c()\n break\n", []),
        ("while a:\n try: break\n except E: continue\n", []),
        ("while a:\n try: b()\n finally: break\n", []),
    ],
)
def test_a_jump_that_mypyc_refuses_is_found(text: str, found: list[str]) -> None:
    assert build_script().misread(text) == found


def test_no_compiled_class_has_a_subclass_that_is_not_compiled() -> None:
    build = build_script()
    sources, paths = build.product(), build.modules()
    assert build.interpreted_subclasses(sources, paths) == []
    scan = "lockstep/storage/log/segment_scan.py"
    search = "lockstep/storage/log/damage_search.py: _TolerantScan inherits from SegmentScan"
    assert build.interpreted_subclasses(sources, [*paths, scan]) == [search]


def test_each_way_to_name_a_compiled_class() -> None:
    compiled = "class A: pass\nclass P(Protocol[T]): pass\nclass E(ValueError): pass\n"
    bases = "class B(A[int]): pass\nclass C(a.A): pass\nclass Q(P): pass\nclass F(E): pass\n"
    found = build_script().interpreted_subclasses({"a.py": compiled, "b.py": bases}, ["a.py"])
    assert found == ["b.py: B inherits from A", "b.py: C inherits from A"]


def test_the_same_tests_pass_compiled() -> None:
    pure = {**os.environ, "PYTHONPATH": str(ROOT), native.VARIABLE: "1"}
    ask = (
        "from lockstep import native; native.enable_if_requested(); "
        "from lockstep.storage.raft import raft; print(raft.__file__)"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", ask], env=pure, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if "make native" in found.stderr:
        pytest.skip("the compiled modules are not built, or of other sources: `make native`")
    assert found.stdout.strip().endswith(native.SUFFIX), found.stderr
    chosen = " and ".join(f"not {each}" for each in NOT_COMPILED)
    run = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *SAME_TESTS, "-k", chosen]
    done = subprocess.run(run, env=pure, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
