"""The volume as a mounted file system: system calls reach it, and stores that do not flush are caught."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compat_tests.kafka_jars import skip_or_fail
from tests.campaigns.disk_full import NotPossible
from tests.power import disk as power_disk
from tests.power.disk import PowerDisk, why_not


@pytest.fixture
def disk() -> Iterator[PowerDisk]:
    reason = why_not()
    if reason is not None:
        skip_or_fail(reason)
    with PowerDisk() as mounted:
        yield mounted


Flush = Callable[[int], None]


def flush_dir(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lose(disk: PowerDisk, seed: int) -> None:
    disk.lose(seed)
    disk.power_on()


def test_reads_see_writes_lengths_and_names_before_any_flush(disk: PowerDisk) -> None:
    (disk.path / "d").mkdir()
    file = os.open(disk.path / "d" / "new", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    assert os.pwritev(file, [b"abc", b"def" * 100_000], 5) == 300_003
    os.posix_fallocate(file, 0, 400_000)
    assert os.fstat(file).st_size == 400_000
    assert os.pread(file, 7, 3) == b"\0\0abcde"
    os.rename(disk.path / "d" / "new", disk.path / "d" / "old")
    os.ftruncate(file, 6)
    assert os.listdir(disk.path / "d") == ["old"]
    os.unlink(disk.path / "d" / "old")
    assert os.pread(file, 100, 0) == b"\0\0\0\0\0a"
    os.close(file)
    os.rmdir(disk.path / "d")
    assert os.listdir(disk.path) == []


@pytest.mark.parametrize("call", [os.fsync, os.fdatasync])
def test_flushed_bytes_under_flushed_names_are_there_after_twenty_losses(
    disk: PowerDisk, call: Flush
) -> None:
    for seed in range(20):
        with open(disk.path / f"file-{seed}", "wb") as file:
            file.write(b"x" * 10_000)
            file.flush()
            call(file.fileno())
            os.pwrite(file.fileno(), b"y" * 10_000, 10_000)
        flush_dir(disk.path)
        lose(disk, seed)
        for number in range(seed + 1):
            assert (disk.path / f"file-{number}").read_bytes()[:10_000] == b"x" * 10_000


def test_bytes_and_names_that_were_not_flushed_are_lost_by_some_of_twenty_losses(disk: PowerDisk) -> None:
    there, whole = 0, 0
    for seed in range(20):
        path = disk.path / f"file-{seed}"
        path.write_bytes(b"x" * 10_000)
        lose(disk, seed)
        there += path.exists()
        whole += path.exists() and path.read_bytes() == b"x" * 10_000
    assert 0 < whole < there < 20


def test_a_rename_without_a_flush_of_the_directory_is_lost_by_some(disk: PowerDisk) -> None:
    seen = set()
    for seed in range(20):
        for name, data in (("state", b"old"), ("state.tmp", b"new")):
            with open(disk.path / name, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            flush_dir(disk.path)
        os.rename(disk.path / "state.tmp", disk.path / "state")
        lose(disk, seed)
        seen.add((disk.path / "state").read_bytes())
    assert seen == {b"old", b"new"}


def test_a_stopped_disk_holds_writers_until_the_power_goes(disk: PowerDisk) -> None:
    file = os.open(disk.path / "a", os.O_RDWR | os.O_CREAT)
    disk.cut(after=2)
    os.pwrite(file, b"1", 0)
    os.pwrite(file, b"2", 1)
    said: list[int | None] = []

    def flush() -> None:
        try:
            os.fdatasync(file)
        except OSError as error:
            said.append(error.errno)
        else:
            said.append(None)

    waiting = threading.Thread(target=flush)
    waiting.start()
    assert disk.wait_until_cut(5)
    assert os.pread(file, 2, 0) == b"12"
    assert said == []
    loss = disk.lose(1)
    waiting.join(5)
    assert said == [errno.EIO]
    assert (loss.changes, loss.names) == (2, 1)
    with pytest.raises(OSError):
        os.listdir(disk.path)
    disk.power_on()
    assert set(os.listdir(disk.path)) <= {"a"}
    with pytest.raises(OSError):
        os.pread(file, 1, 0)  # opened in a former life
    os.close(file)


def test_a_disk_may_stop_with_names_changed_and_not_kept(disk: PowerDisk) -> None:
    disk.cut(after=1, names=True)
    for name in ("first", "second"):
        (disk.path / name).touch()
        if name == "first":
            flush_dir(disk.path)
    assert disk.state()["state"] == "on"

    def flush() -> None:
        with pytest.raises(OSError):
            flush_dir(disk.path)

    stopping = threading.Thread(target=flush)
    stopping.start()
    assert disk.wait_until_cut(5)
    assert disk.lose(1).names == 1
    stopping.join(5)
    disk.power_on()
    assert set(os.listdir(disk.path)) in ({"first"}, {"first", "second"})


STORE = """
import os, sys
flush = sys.argv[2] == "flush"
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
directory = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY)
os.fsync(directory)
for number in range(1 << 20):
    os.pwrite(file, number.to_bytes(8, "big"), 8 * number)
    if flush:
        os.fdatasync(file)
    print(number, flush=True)
"""


def acknowledged_and_lost(disk: PowerDisk, mode: str, cut_after: int, seed: int) -> tuple[int, int]:
    """A store of numbers, its power cut: how many it acknowledged, and how many of those are gone."""
    path = disk.path / f"store-{mode}-{seed}"
    process = subprocess.Popen([sys.executable, "-c", STORE, str(path), mode], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = [process.stdout.readline()]
    disk.cut(after=cut_after)
    assert disk.wait_until_cut(10)
    process.send_signal(signal.SIGKILL)
    disk.lose(seed)
    said += process.stdout.read().splitlines(keepends=True)
    process.stdout.close()
    process.wait()
    disk.power_on()
    acknowledged = [int(line) for line in said if line.endswith(b"\n")]
    data = path.read_bytes()
    kept = [
        number for number in acknowledged if data[8 * number : 8 * number + 8] == number.to_bytes(8, "big")
    ]
    return len(acknowledged), len(acknowledged) - len(kept)


def test_a_store_that_flushes_loses_nothing_and_one_that_does_not_is_caught(disk: PowerDisk) -> None:
    lost = 0
    for seed in range(6):
        count, missing = acknowledged_and_lost(disk, "flush", 17 + seed, seed)
        assert count > 5
        assert missing == 0
        lost += acknowledged_and_lost(disk, "trust", 17 + seed, seed)[1]
    assert lost > 0


def test_the_same_store_on_a_disk_that_lies_is_caught(disk: PowerDisk) -> None:
    (disk.path / "store-flush-0").touch()
    flush_dir(disk.path)
    disk.lie()
    lost = 0
    for _ in range(6):
        lost += acknowledged_and_lost(disk, "flush", 40, 0)[1]
    assert lost > 0


def test_nothing_is_left_mounted(disk: PowerDisk) -> None:
    path = disk.path
    assert os.path.ismount(path)
    disk.close()
    assert not path.exists()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_disk, "DEVICE", Path("/dev/no-such-device"))
    assert why_not() == "there is no /dev/no-such-device, so no file system of our own can be mounted"
    with pytest.raises(NotPossible):
        PowerDisk()
