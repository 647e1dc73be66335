"""A salvaging open: rot above the checkpoint costs the tail, a lost hard state the identity."""

from __future__ import annotations

import errno
import random

import pytest

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import FRAME_BYTES, SEGMENT_HEADER_BYTES
from lockstep.storage.log.marker import MARKER_BYTES
from lockstep.storage.types import CorruptLog, HardState
from tests.storage.log.crash_world import DIRECTORY, GROUP, OPTIONS, chains
from tests.storage.log.frames import FrameMaker, by_turns, same
from tests.storage.log.joined_logs import OPTIONS as SMALL
from tests.storage.log.joined_logs import agree as agree_joined
from tests.storage.log.joined_logs import fill, on_a_simulated_disk
from tests.storage.log.simulated_disk import Image, SimulatedFileSystem
from tests.storage.log.test_installation import agree, follower, install, leader, shipment
from tests.storage.log.test_join_faults import gone_from, joined_names, unfinished
from tests.storage.log.test_rot import closed_world, damage, damaged
from tests.support.cases import each_case


def salvage(disk: SimulatedFileSystem, incarnation: int = 9) -> DataLog:
    return DataLog.open(DIRECTORY, GROUP, OPTIONS, disk, salvage=True, salvage_incarnation=incarnation)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


@each_case("checkpoints", [False, True])
def test_corruption_above_the_checkpoint_is_cut_away(checkpoints: bool) -> None:
    """Segment header, marker, frame header, directory and payload of the first write of each segment."""
    world = closed_world(checkpoints)
    image = world.disk.now()
    newest = world.checkpoint.index if world.checkpoint else 0
    in_use = [s for s in world.log._table if s.first_index > newest + 1]
    assert in_use
    for segment in in_use:
        first = SEGMENT_HEADER_BYTES
        frame = first + MARKER_BYTES
        for at in (30, first + 3, first + 30, frame, frame + 20, frame + FRAME_BYTES + 5, frame + 200):
            name = segment.path.name
            disk = damaged(image, name, flipped(image.files[name], at))
            with pytest.raises(CorruptLog):
                DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(disk.now()))
            log = salvage(disk)
            assert log.report.salvaged_from == segment.first_index == log.last_index + 1
            assert not log.report.salvaged_state and log.hard_state == HardState(0, -1, 9)
            goes_on(log, disk, world.frames)


def goes_on(log: DataLog, disk: SimulatedFileSystem, wrote: list) -> None:  # type: ignore[type-arg]
    """A beginning of what was written, which can be appended to and opened again without salvaging."""
    count = log.last_index
    after = log.checkpoint.index if log.checkpoint else 0
    assert log.chain == ([0, *chains(wrote[:count])][-1] if count else log.chain)
    assert all(map(same, log.replay(), wrote[after:count]))
    make = FrameMaker()
    for frame in wrote[:count]:
        make.follow(frame)
    make.term += 1
    log.append([make.data((1, 1, b"after the rot"))])
    log.flush()
    log.close()
    again = DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(disk.now()))
    assert (again.last_index, again.chain) == (count + 1, log.chain)
    assert again.report.salvaged_from == 0


def test_any_damage_is_salvaged_or_refused() -> None:
    """Random damage to any one file: the beginning of what was written, down to the older checkpoint."""
    image, rng = closed_world().disk.now(), random.Random(11)
    world = closed_world()
    salvaged = refused = 0
    for _ in range(250):
        name = rng.choice(sorted(image.files))
        disk = damaged(image, name, damage(image.files[name], rng))
        try:
            log = salvage(disk)
        except CorruptLog:
            refused += 1
            continue
        salvaged += log.report.salvaged_from > 0
        assert world.checkpoint is not None and log.last_index >= 19
        goes_on(log, disk, world.frames)
    assert salvaged > 20 and refused == 0, (salvaged, refused)


@each_case("damage_more", [False, True])
def test_a_lost_hard_state_is_made_again_with_another_incarnation(damage_more: bool) -> None:
    world = closed_world()
    image = world.disk.now()
    files = {**image.files, "state": bytes(8192)}
    if damage_more:
        last = list(world.log._table)[-1]
        name = last.path.name
        files[name] = flipped(files[name], SEGMENT_HEADER_BYTES + MARKER_BYTES + FRAME_BYTES + 100)
    disk = SimulatedFileSystem(Image(files))
    with pytest.raises(CorruptLog, match="neither slot"):
        DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(disk.now()))
    log = salvage(disk)
    assert log.report.salvaged_state and log.hard_state == HardState(0, -1, 9)
    assert log.last_index == (last.first_index - 1 if damage_more else 40)
    for partition in (1, 2, 3):
        assert log.first_offset(partition) == 0
    goes_on(log, disk, world.frames)


def test_a_crash_while_salvaging_leaves_it_to_be_done_again() -> None:
    """Every moment of the open: nothing rests on the guess before it is whole."""
    image = closed_world().disk.now()
    disk = SimulatedFileSystem(Image({**image.files, "state": bytes(8192)}))
    salvage(disk)
    for upto in range(len(disk.record)):
        for lost in ({}, dict.fromkeys(disk.pending(upto))):
            again = salvage(SimulatedFileSystem(disk.crash(upto, lost)))
            assert again.last_index == 40 and again.hard_state == HardState(0, -1, 9)


def test_another_groups_state_and_a_log_without_a_segment_are_refused_still() -> None:
    image = closed_world().disk.now()
    with pytest.raises(CorruptLog, match="belongs to log group"):
        DataLog.open(
            DIRECTORY, GROUP + 1, OPTIONS, SimulatedFileSystem(image), salvage=True, salvage_incarnation=1
        )
    with pytest.raises(CorruptLog, match="nor any segment header"):
        salvage(SimulatedFileSystem(Image({"state": bytes(8192)})))


@each_case("free", [False, True])
def test_an_installed_log_is_found_again_without_its_state(free: bool) -> None:
    """With freed files where the shipping node had freed frames, and old files lying about."""
    source, made, _ = leader(free=free)
    (log, model), disk = follower()
    for each in (log, model):
        install(each, shipment(source, made.index), made)
    more = source.frames_cold(made.index + 1, 1 << 20)
    for each in (log, model):
        each.append(more)
        each.flush()
    image = disk.now()
    disk = SimulatedFileSystem(Image({**image.files, "state": bytes(8192)}))
    log = salvage(disk)
    assert log.report.salvaged_state and log.report.salvaged_from == 0
    model.hard_state = HardState(0, -1, 9)
    model.crash()
    agree(log, model)
    assert all(map(same, log.replay(), more))


def test_a_lost_hard_state_counts_a_join_only_where_a_segment_has_no_file_of_its_own() -> None:
    """An unfinished join could not be made void for want of room, and its segments were cleaned since."""
    disk, model, _ = unfinished()
    (name,) = joined_names(disk)
    disk = SimulatedFileSystem(disk.now())
    disk.fault = lambda what, where: OSError(errno.ENOSPC, "!") if what == "write" and where == name else None
    log = DataLog.open(DIRECTORY, GROUP, SMALL, disk)
    for segment in log.segments():
        log.clean(segment.sequence, by_turns(0))
    model.clean_upto(8, by_turns(0))
    log.close()
    disk.fault = None
    lost = {"state": bytes(8192)}
    log = DataLog.open(
        DIRECTORY,
        GROUP,
        SMALL,
        SimulatedFileSystem(Image({**disk.now().files, **lost})),
        salvage=True,
        salvage_incarnation=7,
    )
    gone_from(log, model)
    # A finished one counts, whichever of its segments' names came back.
    for back in range(4):
        log, model, make, disk = on_a_simulated_disk(4)
        log.join()
        fill(log, model, make, 4)
        before = disk.now().files
        log.join()
        former = sorted(name for name in before if name not in disk.now().files and name.endswith(".segment"))
        files = {**before, **disk.now().files, **lost}
        del files[former[back + 1]]
        log = DataLog.open(
            DIRECTORY, GROUP, SMALL, SimulatedFileSystem(Image(files)), salvage=True, salvage_incarnation=7
        )
        assert [segment.sequence for segment in log.segments()] == [8]
        agree_joined(log, model)


@pytest.mark.parametrize("back", ["all", "all but the first"])
def test_salvage_brings_nothing_back_that_was_cleaned_after_a_join(back: str) -> None:
    """The names of a join's segments are back after a power loss, its file was cleaned, the state is lost."""
    log, model, _, disk = on_a_simulated_disk(4)
    before = disk.now().files
    assert log.join() == 3
    log.clean(4, by_turns(0))
    model.clean_upto(8, by_turns(0))
    log.close()
    files = {**before, **disk.now().files, "state": bytes(8192)}
    if back != "all":
        del files["0000000000000001.segment"]
    log = salvage_small(files)
    gone_from(log, model)
    assert [segment.sequence for segment in log.segments()] == [4]


def test_salvage_takes_the_records_of_a_lost_segment_from_an_unfinished_join() -> None:
    """It could not be made void for want of room. What was cleaned since is back: the rest would be lost."""
    disk, model, _ = unfinished()
    (name,) = joined_names(disk)
    disk = SimulatedFileSystem(disk.now())
    disk.fault = lambda what, where: OSError(errno.ENOSPC, "!") if what == "write" and where == name else None
    log = DataLog.open(DIRECTORY, GROUP, SMALL, disk)
    for segment in log.segments():
        log.clean(segment.sequence, by_turns(0))
    log.close()
    disk.fault = None
    files = {**disk.now().files, "state": bytes(8192)}
    del files["0000000000000002.segment"]
    log = salvage_small(files)
    agree_joined(log, model)
    assert [segment.sequence for segment in log.segments()] == [4]


def salvage_small(files: dict[str, bytes]) -> DataLog:
    disk = SimulatedFileSystem(Image(files))
    return DataLog.open(DIRECTORY, GROUP, SMALL, disk, salvage=True, salvage_incarnation=7)


def without(names: list[str]) -> dict[str, bytes]:
    """A closed log of eight segments that has lost its state and these files."""
    log, _, _, disk = on_a_simulated_disk(8)
    log.close()
    return {name: data for name, data in disk.now().files.items() if name not in names} | {
        "state": bytes(8192)
    }


@pytest.mark.parametrize(("lost", "frames"), [(1, "1 to 2"), (3, "5 to 6"), (7, "13 to 14")])
def test_salvage_rejects_a_log_whose_index_file_names_a_missing_segment(lost: int, frames: str) -> None:
    """It began behind the gap, and the records before it were gone without a word."""
    with pytest.raises(
        CorruptLog,
        match=f"{lost:016d}.segment: the segment is missing; it held frames {frames}; the state file is "
        "damaged, too; put it back",
    ):
        salvage_small(without([f"{lost:016d}.segment"]))


def test_salvage_names_a_missing_joined_file_by_its_index() -> None:
    log, model, make, disk = on_a_simulated_disk(4)
    log.join()
    fill(log, model, make, 2)
    (name,) = joined_names(disk)
    log.close()
    files = {each: data for each, data in disk.now().files.items() if each != name}
    with pytest.raises(CorruptLog, match=f"{name}: .*segments 1 to 4 were joined; it held frames 1 to 8"):
        salvage_small(files | {"state": bytes(8192)})


def test_salvage_reports_the_segment_that_it_skipped() -> None:
    """Without its index file a missing segment cannot be told from a freed one."""
    log = salvage_small(without(["0000000000000003.segment", "0000000000000003.index"]))
    assert log.segments()[0].sequence == 4
    words = (
        "0000000000000003.segment: the segment is missing; it held frames ... to 6; "
        "start a node of a cluster with the same number and an empty directory"
    )
    assert words in log.report.skipped_segments
    assert salvage_small(without([])).report.skipped_segments == ""
