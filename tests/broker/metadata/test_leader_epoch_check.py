"""What is answered of leader epochs is the same once those that ended below the log start are forgotten."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace
from typing import cast

from lockstep.broker.metadata.leader_epoch_check import end_of_epoch, epoch_at
from lockstep.broker.metadata.metadata_cache import Partition
from lockstep.storage.partition import PartitionLog

END = 6
NEWEST = 5


def partition(epochs: list[tuple[int, int]], log_start: int) -> Partition:
    """Led in the newest epoch, which may have written nothing yet."""
    log = PartitionLog(1, bytes(16), 0)
    log.leader_epochs, log.log_start_offset = list(epochs), log_start
    log.next_offset = log.high_watermark = END
    return cast(Partition, SimpleNamespace(log=log, leader_epoch=NEWEST))


def diverges(found: Partition, leader_epoch: int, offset: int) -> bool:
    """Whether one that has read up to an offset, the last record in this epoch, is told to go back."""
    epoch, end_offset = end_of_epoch(found, leader_epoch)
    return epoch < leader_epoch or end_offset < offset


def test_a_client_at_or_above_the_log_start_gets_the_same_response() -> None:
    """Every choice of epochs and of the offsets where they began, every log start, every question."""
    forgotten = 0
    for count in range(1, 5):
        for numbers in combinations(range(NEWEST + 1), count):
            for later in combinations(range(1, END), count - 1):
                epochs = list(zip(numbers, (0, *later), strict=True))
                for log_start in range(END + 1):
                    before, after = partition(epochs, log_start), partition(epochs, log_start)
                    after.log.forget_epochs()
                    left = after.log.leader_epochs
                    assert left and left == epochs[-len(left) :]
                    forgotten += len(epochs) - len(left)
                    for offset in range(log_start, END + 1):
                        assert epoch_at(after, offset) == epoch_at(before, offset)
                        for asked in range(NEWEST + 1):
                            assert diverges(after, asked, offset) == diverges(before, asked, offset)
                    for asked in range(left[0][0], NEWEST + 1):
                        assert end_of_epoch(after, asked) == end_of_epoch(before, asked)
    assert forgotten > 1000
