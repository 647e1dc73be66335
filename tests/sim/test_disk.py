"""The simulated disk: what a crash leaves is what was flushed, and any part of the rest."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from tests.sim.disk import Disk, PowerCut
from tests.sim.disk_faults import DiskFaults

A, B = Path("d/a"), Path("d/b")


class Bench:
    """A disk whose node is always running; `spent_us` is what its operations took."""

    def __init__(self, seed: int = 1) -> None:
        random = Random(seed)
        self.faults = DiskFaults(random, 100, 0.0)
        self.faults.cut = PowerCut()
        self.spent_us = 0
        self.disk = Disk(random, self.faults, self._charge, lambda: True)

    def _charge(self, duration_us: int) -> None:
        self.spent_us += duration_us

    def file(self, path: Path, *parts: bytes, flush: bool = True) -> int:
        fd = self.disk.open(path, create=True)
        at = 0
        for part in parts:
            at += self.disk.pwritev(fd, [part], at)
        if flush:
            self.disk.fdatasync(fd)
            self.disk.fsync_dir(path.parent)
        return fd

    def content(self, path: Path) -> bytes | None:
        self.disk.mount()
        try:
            fd = self.disk.open(path)
        except FileNotFoundError:
            return None
        return self.disk.pread(fd, 1 << 20, 0)


def test_flushed_bytes_survive_and_a_kill_keeps_everything() -> None:
    for seed in range(30):
        bench = Bench(seed)
        fd = bench.file(A, b"one", b"two")
        bench.disk.pwritev(fd, [b"!!"], 6)
        bench.disk.kill()
        assert bench.content(A) == b"onetwo!!"
        bench.disk.lose_power()  # the kill has flushed nothing
        assert bench.content(A) in (b"onetwo", b"onetwo!!")


def test_unflushed_writes_are_lost_in_any_subset_and_torn() -> None:
    seen = set()
    for seed in range(400):
        bench = Bench(seed)
        fd = bench.file(A, bytes(4096))
        bench.disk.pwritev(fd, [b"x" * 512 + b"y" * 512], 0)
        bench.disk.pwritev(fd, [b"z" * 512], 1024)
        bench.disk.lose_power()
        data = bench.content(A) or b""
        assert len(data) == 4096
        seen.add(tuple(data[at] for at in (0, 512, 1024)))
    assert {bytes(each).replace(b"\0", b"-") for each in seen} == {
        b"---", b"xyz", b"xy-", b"--z", b"x--", b"-y-", b"x-z", b"-yz",
    }  # fmt: skip


def test_names_are_lost_until_their_directory_is_flushed() -> None:
    seen = set()
    for seed in range(100):
        bench = Bench(seed)
        bench.file(A, b"a")
        bench.disk.rename(A, B)
        bench.disk.lose_power()
        seen.add((bench.content(A), bench.content(B)))
    assert seen == {(b"a", None), (None, b"a")}


def test_faults_fail_the_operation_and_are_remembered() -> None:
    bench = Bench()
    fd = bench.file(A, b"kept")
    bench.disk.pwritev(fd, [b"more"], 4)
    bench.faults.failing["flush"] = 1
    with pytest.raises(OSError) as failure:
        bench.disk.fdatasync(fd)
    assert failure.value.errno == errno.EIO
    assert bench.faults.injected == ["flush a"]
    bench.disk.kill()
    assert bench.content(A) in (b"kept", b"keptmore")
    bench.faults.free_bytes = bench.disk.used_bytes
    with pytest.raises(OSError) as full:
        bench.disk.pwritev(bench.disk.open(B, create=True), [b"x"], 0)
    assert full.value.errno == errno.ENOSPC


def test_a_cut_stops_the_node_before_a_change_and_nothing_happens_after() -> None:
    bench = Bench()
    fd = bench.file(A, b"first")
    bench.faults.armed_cut = 2
    bench.disk.pwritev(fd, [b"FIRST"], 0)
    with pytest.raises(PowerCut):
        bench.disk.fdatasync(fd)
    with pytest.raises(PowerCut):
        bench.disk.pwritev(fd, [b"never"], 0)
    bench.disk.kill()
    assert bench.content(A) == b"FIRST"


def test_flushes_take_time_and_a_stalled_one_more() -> None:
    bench = Bench()
    fd = bench.file(A, b"x")
    before = bench.spent_us
    bench.faults.stall_us = 1_000_000
    bench.disk.fdatasync(fd)
    assert bench.spent_us - before > 1_000_000
    before = bench.spent_us
    bench.disk.fdatasync(fd)
    assert 0 < bench.spent_us - before < 10_000


def test_only_settled_bytes_may_be_damaged() -> None:
    bench = Bench()
    fd = bench.file(A, b"a" * 10)
    assert not bench.disk.settled("a", 0, 10)
    for at in (10, 20):
        bench.disk.pwritev(fd, [b"b" * 10], at)
        bench.disk.fdatasync(fd)
    assert bench.disk.settled("a", 0, 10)
    assert not bench.disk.settled("a", 5, 15)
    bench.disk.damage("a", 3, b"!")
    bench.disk.lose_power()
    assert (bench.content(A) or b"").startswith(b"aaa!aaa")
