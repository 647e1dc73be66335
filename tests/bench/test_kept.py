"""Kept results: whole or not at all, none in another's place, and a word for what is none."""

from __future__ import annotations

import gzip
import hashlib
import json
from array import array
from pathlib import Path

import pytest

from bench import kept, raw


def test_a_result_is_never_in_anothers_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda *_: "20260101-000000")
    paths = [kept.keep({"number": number}, tmp_path / "out", "x") for number in range(3)]
    assert [path.name for path in paths] == [
        "20260101-000000-x.json",
        "20260101-000000.1-x.json",
        "20260101-000000.2-x.json",
    ]
    assert [json.loads(path.read_text())["number"] for path in paths] == [0, 1, 2]


def test_what_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    kept.write(path, "before")

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        kept.write(path, b"after")
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "{}", '{"other": 1}', "\udcff"])
def test_what_is_no_result_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(kept.Unreadable, match=r"a\.json is no kept result"):
        kept.read(path, "machine")
    path.write_text('{"machine": {}}')
    assert kept.read(path, "machine") == {"machine": {}}


SAMPLES = array("q", [3, 2**40, -1]).tobytes()


def test_what_is_held_is_written_beside_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = raw.RawSamples()
    said = held.add(2, "latency1-flush", SAMPLES)
    digest = hashlib.sha256(SAMPLES).hexdigest()
    assert said == {"samples": 3, "sha256": digest, "file": "latency1-flush-2.i64.gz"}
    held.add(3, "latency1-flush", SAMPLES[:8])
    with pytest.raises(ValueError, match=r"latency1-flush-2\.i64\.gz is held already"):
        held.add(2, "latency1-flush", b"")
    assert list(tmp_path.iterdir()) == [], "nothing is written before the result is"
    held.write(tmp_path / "20260101-x.json")
    beside = tmp_path / "raw" / "20260101-x"
    found = {path.name: gzip.decompress(path.read_bytes()) for path in beside.iterdir()}
    assert found == {"latency1-flush-2.i64.gz": SAMPLES, "latency1-flush-3.i64.gz": SAMPLES[:8]}
    assert "raw/20260101-x" in capsys.readouterr().err


def test_a_run_without_latencies_makes_no_directory(tmp_path: Path) -> None:
    raw.RawSamples().write(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_block_names_what_its_job_left_and_one_that_fails_leaves_nothing(tmp_path: Path) -> None:
    scratch: list[Path] = []

    def work(path: Path, fails: bool = False) -> dict[str, object]:
        scratch.append(path)
        path.write_bytes(SAMPLES)
        if fails:
            raise RuntimeError("broke")
        return {"name": "x"}

    block = raw.take_block(work, lambda samples: raw.write(tmp_path / "x.i64.gz", samples))
    assert block["raw"]["samples"] == 3 and gzip.decompress((tmp_path / "x.i64.gz").read_bytes()) == SAMPLES
    with pytest.raises(RuntimeError, match="broke"):
        raw.take_block(
            lambda path: work(path, True), lambda samples: pytest.fail("kept of a block that failed")
        )
    bare = raw.take_block(lambda path: {"name": "y"}, lambda samples: pytest.fail("there are none"))
    assert bare == {"name": "y"}
    assert len(scratch) == 2 and not any(path.parent.exists() for path in scratch)


def test_git_does_not_have_raw_files() -> None:
    ignored = (kept.LOCAL_RESULTS.parent / ".gitignore").read_text().splitlines()
    assert f"{raw.DIRECTORY}/" in ignored
