"""The mark in a file: whole or as before, and never guessed."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockstep.player.target.file import AppliedInPart, FileStore, TargetStopped
from lockstep.player.target.records import Delivered
from lockstep.player.target.store import MarkMismatch
from tests.player.target.stores import NAME, FileLedger, entries, mark
from tests.player.target.streams import PATIENCE_S


def marks_of(ledger: FileLedger) -> Path:
    (found,) = (ledger.directory / "marks").glob("*.mark")
    return found


def test_what_is_written(file_ledger: FileLedger) -> None:
    log = file_ledger.store().open(NAME)
    log.fence(mark(2, 41))
    log.close()
    line, crc, rest = marks_of(file_ledger).read_text().split("\n")
    assert line == '{"log_id": "cluster/topic/0", "player_term": 1, "target_term": 2, "position": 41}'
    assert (len(crc), rest) == (8, "")
    assert marks_of(file_ledger).name.startswith("cluster%2Ftopic%2F0-")


def test_file_and_directory_are_flushed_before_the_end(
    file_ledger: FileLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = file_ledger.store().open(NAME)
    flushed: list[str] = []
    real = os.fsync

    def fsync(number: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{number}")).suffix)
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    log.fence(mark(1, -1))
    assert flushed == [".new", ""]
    log.close()


@pytest.mark.parametrize("size", [0, 1, -1, -9])
def test_a_file_that_was_cut_stops_the_target(file_ledger: FileLedger, size: int) -> None:
    log = file_ledger.store().open(NAME)
    log.fence(mark(1, 4))
    path = marks_of(file_ledger)
    path.write_bytes(path.read_bytes()[:size])
    for call in (log.load, lambda: log.fence(mark(2, 4)), lambda: log.store(entries(4, 5), mark(1, 5))):
        with pytest.raises(MarkMismatch, match="not as it was written"):
            call()
    assert file_ledger.applied() == []
    log.close()


def test_a_file_that_was_changed_stops_the_target(file_ledger: FileLedger) -> None:
    log = file_ledger.store().open(NAME)
    log.fence(mark(1, 4))
    path = marks_of(file_ledger)
    path.write_bytes(path.read_bytes().replace(b'"position": 4', b'"position": 3'))
    with pytest.raises(MarkMismatch, match="not as it was written"):
        log.load()
    path.unlink()
    with pytest.raises(MarkMismatch, match="gone"):
        log.store(entries(4, 5), mark(1, 5))
    log.close()


def test_a_file_of_another_log_stops_the_target(file_ledger: FileLedger) -> None:
    store = file_ledger.store()
    log, other = store.open(NAME), store.open(NAME._replace(log_id="cluster/topic/1"))
    log.fence(mark(1, 4))
    path = marks_of(file_ledger)
    other.fence(mark(1, 9))
    (others,) = set(path.parent.glob("*.mark")) - {path}
    others.write_bytes(path.read_bytes())
    with pytest.raises(MarkMismatch, match="the mark of cluster/topic/0"):
        other.load()
    log.close()
    other.close()


def test_what_a_crash_leaves_behind_is_ignored(file_ledger: FileLedger) -> None:
    log = file_ledger.store().open(NAME)
    log.fence(mark(1, 4))
    marks_of(file_ledger).with_suffix(".new").write_bytes(b"{")
    log.store(entries(4, 5), mark(1, 5))
    assert log.load() == mark(1, 5)
    log.close()


def test_nobody_waits_for_ever(file_ledger: FileLedger) -> None:
    applying, go_on = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        applying.set()
        assert go_on.wait(PATIENCE_S)

    file_ledger.then = wait
    log = file_ledger.store().open(NAME)
    log.fence(mark(1, -1))
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(log.store, entries(-1, 0), mark(1, 0))
        assert applying.wait(PATIENCE_S)
        impatient = file_ledger.store(timeout_s=0).open(NAME)
        with pytest.raises(TimeoutError, match="another process applies"):
            impatient.fence(mark(2, -1))
        stopping = file_ledger.store()
        other = stopping.open(NAME)
        second = threads.submit(other.fence, mark(2, -1))
        stopping.stop()
        with pytest.raises(TargetStopped):
            second.result(PATIENCE_S)
        go_on.set()
        first.result(PATIENCE_S)
    assert impatient.fence(mark(2, -1)) == 0
    for each in (log, impatient, other):
        each.close()


def test_apply_is_a_plain_function() -> None:
    async def later(delivered: Delivered) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        FileStore("marks", later)


def test_an_application_that_has_applied_some_entries(tmp_path: Path) -> None:
    says = [1, 9, -5]

    def apply(delivered: Delivered) -> None:
        raise AppliedInPart(says.pop(0), LookupError("no such account"))

    log = FileStore(tmp_path, apply).open(NAME)
    log.fence(mark(1, -1))
    for stored in (-1, 1, 1):  # nothing that was not there, and never back
        with pytest.raises(LookupError, match="no such account"):
            log.store(entries(stored, 2, 3, 9), mark(1, 9))
        assert log.load() == mark(1, 1)
    log.close()
