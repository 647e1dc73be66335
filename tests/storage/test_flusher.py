"""What is counted and said of flushes; where they run is in `test_log_group.py`."""

from __future__ import annotations

import asyncio

import pytest

from lockstep.storage.flusher import Flusher


class Disk:
    """A log whose flushes take as long as the test says, by its own clock."""

    now = 0.0
    takes = 0.0

    def flush(self) -> None:
        self.now += self.takes

    def seconds(self) -> float:
        return self.now


async def test_flushes_are_counted_and_a_stalled_one_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    flusher = Flusher(disk, "group-7-flush", loop, disk.seconds, lambda _: ended.set())  # type: ignore[arg-type]
    disk.takes = 0.001
    assert flusher.start()
    disk.takes = 1.25
    assert flusher.start()
    assert (flusher.flushes, flusher.flush_seconds) == (2, 1.251)
    assert caplog.messages == ["group-7-flush: the disk took 1.2 s for one flush"]
    disk.takes = 0.002
    assert not flusher.start()  # such a disk gets a thread
    await ended.wait()
    assert flusher.flushes == 3 and len(caplog.messages) == 1
    flusher.close()
