"""Free memory is kept in the page cache while brokers are measured."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bench.machine import memory
from bench.machine.device import NoBlockDevice
from bench.machine.memory import LEFT_BYTES, FileOfHoles, free_memory
from bench.machine.pauses import PAUSE_MS, SLEEP_S, Pauses, await_calm

PIECE = 1 << 20


def test_filled_until_little_is_free(tmp_path: Path) -> None:
    holes = FileOfHoles(tmp_path)

    def free_bytes() -> int:
        return LEFT_BYTES + 4 * PIECE - os.fstat(holes._fd).st_size

    found = holes.fill(free_bytes, PIECE)
    assert found["gb"] == 0.0 and found["ms_per_mb_highest"] > 0
    status = os.fstat(holes._fd)
    assert (status.st_size, status.st_blocks) == (3 * PIECE, 0)  # nothing is on the disk
    assert status.st_nlink == 0  # nor left behind, however this ends
    assert holes.fill(free_bytes, PIECE)["ms_per_mb_highest"] == 0.0


def test_its_pages_are_in_the_cache_at_once(tmp_path: Path) -> None:
    holes = FileOfHoles(tmp_path)
    holes._map(16 * PIECE)
    (smaps,) = [
        part
        for part in Path("/proc/self/smaps").read_text().split("\nVmFlags")
        if f"{16 * PIECE // 1024} kB" in part and str(tmp_path) in part
    ]
    resident = next(line for line in smaps.splitlines() if line.startswith("Rss:"))
    assert int(resident.split()[1]) == 16 * PIECE // 1024


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    assert free_memory(tmp_path) > 0
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert free_memory(tmp_path) == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(tmp_path) > 600


def test_a_process_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_holders", [])
    monkeypatch.setattr(memory, "await_calm", lambda: 0.5)
    monkeypatch.setattr(memory, "device_of", lambda parent: "vda")
    assert memory.keep_again() == {}
    nothing = {"gb": 0.0, "ms_per_mb_highest": 0.0, "ms_per_mb_lowest": 0.0}
    assert memory.kept(tmp_path, left_bytes=1 << 50) == {**nothing, "calm_after_s": 0.5}
    assert memory.keep_again() == nothing
    assert memory.kept(tmp_path) == {**nothing, "calm_after_s": 0.5}  # of that process
    (holder,) = memory._holders
    memory.let_go()
    assert holder._process.poll() == 0
    assert memory.keep_again() == {}


def test_an_ended_process_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "_holders", [memory.Holder(tmp_path, 1 << 50)])
    (holder,) = memory._holders
    holder._process.kill()
    holder._process.wait()
    assert memory.keep_again() == {}
    assert "KEPT NO MORE" in capsys.readouterr().err
    assert memory._holders == []


def test_a_limit_that_is_not_seen_ends_it(tmp_path: Path) -> None:
    holes = FileOfHoles(tmp_path)
    holes.fill(lambda: 1 << 50, PIECE)  # never less
    assert os.fstat(holes._fd).st_size == PIECE


def test_not_where_the_cache_would_be_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_holders", [])

    def no_disk(parent: Path) -> str:
        raise NoBlockDevice("tmpfs")

    monkeypatch.setattr(memory, "device_of", no_disk)
    assert memory.kept(tmp_path) == {}
    assert memory.keep_again() == {}


class Machine:
    """A clock whose sleeps take longer where the machine stands still."""

    def __init__(self, patch: pytest.MonkeyPatch, *stops: tuple[float, float]) -> None:
        self.now = 0.0
        self._stops = list(stops)
        patch.setattr(time, "sleep", self.sleep)
        patch.setattr(time, "monotonic", lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self._stops and self.now >= self._stops[0][0]:
            self.now += self._stops.pop(0)[1]


def test_a_run_begins_once_the_machine_has_been_still_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch)
    assert await_calm(10.0, 60.0) == pytest.approx(10.0, abs=0.1)
    Machine(monkeypatch, (4.0, 0.3), (9.0, 0.02))
    assert await_calm(10.0, 60.0) == pytest.approx(14.3, abs=0.1), "20 ms are no pause"
    Machine(monkeypatch, *((float(at), 0.4) for at in range(1, 99, 5)))
    assert await_calm(10.0, 60.0) == pytest.approx(60.0, abs=1.0), "it does not wait for ever"


def test_what_a_thread_oversleeps_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pauses() as still:
        time.sleep(4 * SLEEP_S)
    assert not still._thread.is_alive()
    found = Pauses()
    waits = iter([SLEEP_S, SLEEP_S + 0.2, SLEEP_S])
    now = [0.0]

    def wait(seconds: float) -> bool:
        took = next(waits, None)
        now[0] += took or 0.0
        return took is None

    monkeypatch.setattr(found._over, "wait", wait)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    found._run()
    assert found.longest_ms == pytest.approx(200.0) and found.longest_ms >= PAUSE_MS
