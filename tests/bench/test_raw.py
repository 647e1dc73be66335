"""Raw latencies: whole, named with their digest, and none of a block that failed."""

from __future__ import annotations

import gzip
import hashlib
from array import array
from pathlib import Path

import pytest

from bench import kept, raw

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
