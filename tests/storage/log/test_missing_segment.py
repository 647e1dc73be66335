"""A segment whose file is missing: which file it was and what it held, at a start and of a stopped log."""

from __future__ import annotations

from pathlib import Path

from lockstep.storage.log import inspect
from lockstep.storage.log.missing_segment import describe_missing, joined_file_of, with_missing_joined
from lockstep.storage.types import NO_PARTITION
from tests.storage.log.crash_world import GROUP
from tests.storage.log.joined_logs import fill, on_a_simulated_disk, two_checkpoints
from tests.storage.log.test_join_faults import joined_names

OLD, NEW = "0000000000000001-0000000000000002-00000001", "0000000000000001-0000000000000004-00000002"


def test_an_index_file_identifies_the_missing_joined_file() -> None:
    names = [f"{OLD}.index", f"{NEW}.index", "0000000000000005.segment", "0000000000000005.index"]
    found = joined_file_of(names, 2)
    assert found is not None and found.name == f"{NEW}.segment"
    assert joined_file_of(names, 5) is None
    assert set(with_missing_joined(names)) == {*names, f"{OLD}.segment", f"{NEW}.segment"}
    names.append("0000000000000003.segment")
    assert f"{NEW}.segment" not in with_missing_joined(names)


def test_a_missing_segment_is_described_as_far_as_its_neighbours_know_it() -> None:
    directory = Path("log")
    text = describe_missing(directory, [f"{NEW}.index"], 1, 2, 1, 90)
    assert text.startswith(
        f"log/{NEW}.segment: the segment is missing, into which segments 1 to 4 were joined"
    )
    assert "; it held frames 1 to 90; put it back from a copy, or" in text
    assert "it held frames ... to 90" in describe_missing(directory, [], 7, 0, 0, 90)
    text = describe_missing(directory, [], 7, 0, 0, 0)
    assert text.startswith("log/0000000000000007.segment: the segment is missing; put it back")
    assert "or a file into which it was joined with others" in describe_missing(directory, [], 7, 1, 0, 0)


def test_a_stopped_log_without_its_joined_file_names_it_and_what_was_in_it(tmp_path: Path) -> None:
    log, model, make, disk = on_a_simulated_disk(6)
    log.join()
    fill(log, model, make, 1, frames=60)
    two_checkpoints(log, model)
    (name,) = joined_names(disk)
    for each, data in disk.now().files.items():
        if each != name:
            (tmp_path / each).write_bytes(data)
    found = inspect.verify(tmp_path, GROUP)
    assert [(each.segment, each.partition, each.first_offset, each.last_offset) for each in found.damage] == [
        (6, NO_PARTITION, 1, 12),
        (6, 1, 0, 11),
        (6, 2, 0, 11),
        (6, 3, 0, 11),
    ]
    assert all(f"{name} byte 0: the segment is missing" in each.problem for each in found.damage)
