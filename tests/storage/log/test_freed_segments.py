"""What was freed behind a segment that stays: named in few files, whatever a crash leaves of a merging."""

from __future__ import annotations

import itertools

import pytest

from lockstep.storage.log.freed_segments import (
    FreedSequences,
    forget_freed,
    freed_file_name,
    freed_runs,
    merge_runs,
    record_freed,
)
from tests.storage.log.crash_world import DIRECTORY
from tests.storage.log.simulated_disk import SimulatedFileSystem
from tests.support.cases import each_case

ONE, RUN = "0000000000000007.freed", "0000000000000003-0000000000000005.freed"


def test_names() -> None:
    assert (freed_file_name(7), freed_file_name(7, 7), freed_file_name(3, 5)) == (ONE, ONE, RUN)
    strange = ["x.freed", "1-x.freed", "-1.freed", "1-.freed", "0000000000000008.segment"]
    assert freed_runs([ONE, *strange, RUN]) == [(3, 5), (7, 7)]


def test_merged() -> None:
    assert merge_runs([(7, 7), (3, 5), (6, 6), (1, 1), (4, 4)]) == [(1, 1), (3, 7)]
    assert merge_runs([]) == []


@each_case("names", [[ONE, RUN], [ONE, RUN, freed_file_name(4)], [ONE, *map(freed_file_name, (3, 4, 5))]])
def test_what_they_stand_for(names: list[str]) -> None:
    freed = FreedSequences(names)
    assert [each for each in range(10) if each in freed] == [3, 4, 5, 7]
    assert freed.any_below(1 << 40) and not freed.any_below(0) and not FreedSequences([]).any_below(1 << 40)
    assert [freed.first_missing(each, {1, 2, 6}) for each in range(9)] == [0, 8, 8, 8, 8, 8, 8, 8, 8]
    assert freed.first_missing(1, {1, 2}) == 6


def test_files_are_as_few_as_the_runs() -> None:
    disk = SimulatedFileSystem()
    disk.make_dir(DIRECTORY)
    for sequences in ((2,), (3, 4), (9,), (6, 5), (9,)):
        record_freed(disk, DIRECTORY, sequences)
    assert sorted(disk.list_dir(DIRECTORY)) == [freed_file_name(2, 6), freed_file_name(9)]
    forget_freed(disk, DIRECTORY, 9, {4})
    assert len(disk.list_dir(DIRECTORY)) == 2, "a reader still has one of its files"
    forget_freed(disk, DIRECTORY, 9, set())
    assert disk.list_dir(DIRECTORY) == [freed_file_name(9)]


def test_a_flush_that_failed_is_done_again() -> None:
    disk = SimulatedFileSystem()
    disk.make_dir(DIRECTORY)
    disk.fault = lambda what, name: OSError(5, "I/O error") if what == "flush_dir" else None
    with pytest.raises(OSError, match="I/O error"):
        record_freed(disk, DIRECTORY, (2,))
    disk.fault = None
    assert disk.pending(len(disk.record))
    record_freed(disk, DIRECTORY, (2,))
    assert not disk.pending(len(disk.record))


def test_a_crash_forgets_none() -> None:
    disk = SimulatedFileSystem()
    disk.make_dir(DIRECTORY)
    record_freed(disk, DIRECTORY, (2, 4))
    begun = len(disk.record)
    record_freed(disk, DIRECTORY, (3,))
    for upto in range(begun, len(disk.record) + 1):
        pending = disk.pending(upto)
        for count in range(len(pending) + 1):
            for lost in itertools.combinations(pending, count):
                image = disk.crash(upto, dict.fromkeys(lost))
                freed = FreedSequences(image.files)
                assert 2 in freed and 4 in freed
                assert upto < len(disk.record) or 3 in freed
