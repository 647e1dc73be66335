"""Reads over what was freed together with its file, also while more of it is being freed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from lockstep.storage import gap_reads
from lockstep.storage.log.damage import DamagedRange
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import NO_SEGMENT, DamagedBatch, OffsetOutOfRange, ReadResult
from tests.support.cases import each_case


class Freeing:
    """A log of which one more segment of 10 offsets is freed under each read, from offset 0 on."""

    def __init__(self, freed_under_reads: int, *missing: DamagedRange) -> None:
        self.left = freed_under_reads
        self.damage = SimpleNamespace(missing={1: list(missing)} if missing else {})
        self.first = 0

    def first_offset(self, partition: int) -> int:
        return self.first

    def read(self, partition: int, offset: int, max_bytes: int, end_offset: int) -> ReadResult:
        if self.left:
            self.left -= 1
            self.first += 10
        if offset < self.first:
            raise OffsetOutOfRange("has just been freed")
        return ReadResult([offset.to_bytes(2, "big")], 2)

    read_cold = read


def read(log: Freeing, offset: int, log_start_offset: int = 0) -> int:
    partition = PartitionLog(1, bytes(16), 0)
    partition.log_start_offset = log_start_offset
    found = gap_reads.read(cast(DataLog, log), partition, offset, 100, 1 << 40, False)
    return int.from_bytes(found.buffers[0], "big")


@each_case("freed", [0, 1, 2, 20])
def test_reading_goes_on_with_what_follows(freed: int) -> None:
    assert read(Freeing(freed), 0) == 10 * freed


def test_what_is_deleted_is_out_of_range() -> None:
    with pytest.raises(OffsetOutOfRange):
        read(Freeing(1), 3, log_start_offset=4)


def test_it_is_not_tried_for_ever() -> None:
    with pytest.raises(OffsetOutOfRange):
        read(Freeing(1 << 40), 0)


def missing_until(end_offset: int, given_up: bool) -> DamagedRange:
    return DamagedRange(0, NO_SEGMENT, 1, 0, end_offset, "gone", given_up)


def test_missing_records_are_no_gap_until_they_are_given_up() -> None:
    log = Freeing(0, missing_until(7, False))
    log.first = 7
    with pytest.raises(DamagedBatch):
        read(log, 6)
    assert read(log, 7) == 7
    given_up = Freeing(0, missing_until(7, True))
    given_up.first = 7
    assert read(given_up, 6) == 7


def test_a_read_ends_behind_missing_records_where_nothing_follows() -> None:
    log, partition = Freeing(0, missing_until(7, True)), PartitionLog(1, bytes(16), 0)
    log.first = 9
    found = gap_reads.read(cast(DataLog, log), partition, 3, 100, 7, False)
    assert (found.buffers, found.next_offset) == ([], 7)
