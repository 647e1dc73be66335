"""Damage to bytes that were flushed: refused with file and place, or repaired; never wrong, never silent."""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.storage.log import inspect
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import segment_of
from lockstep.storage.types import Checkpoint, CorruptLog, DamagedBatch, Frame, NewerFormat
from tests.storage.log.crash_world import DIRECTORY, GROUP, OPTIONS, World, chains
from tests.storage.log.frames import same, whole
from tests.storage.log.simulated_disk import FlushNames, Image, SimulatedFileSystem, Write
from tests.support.cases import each_case


def closed_world(checkpoints: bool = True) -> World:
    """A log of several segments, with two checkpoints, closed properly."""
    world, rng = World(), random.Random(5)
    for turn in range(40):
        world.append(world.make.data((rng.randrange(1, 4), 2, rng.randbytes(rng.randrange(50, 2500)))))
        world.flush()
        if checkpoints and turn in (18, 33):
            world.write_checkpoint()
    world.log.close()
    return world


def damaged(image: Image, name: str, data: bytes) -> SimulatedFileSystem:
    return SimulatedFileSystem(Image({**image.files, name: data}))


def on_disk(image: Image, directory: Path) -> Path:
    """The same files for real: inspection takes no file system but its own."""
    for name, data in image.files.items():
        (directory / name).write_bytes(data)
    return directory


def rot_is_seen(directory: Path) -> bool:
    try:
        return inspect.verify(directory, GROUP).is_corrupt
    except NewerFormat:
        return True


def damage(data: bytes, rng: random.Random) -> bytes:
    """One bit, a run of zeros, a run of noise, or a piece of the same file in another place."""
    at, length = rng.randrange(len(data)), rng.choice((1, 8, 60, 512, 4096))
    part = data[at : at + length]
    kind = rng.randrange(4)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        other = bytes(len(part))
    elif kind == 2:
        other = rng.randbytes(len(part))
    else:
        start = rng.randrange(max(1, len(data) - len(part)))
        other = data[start : start + len(part)]
    return data[:at] + other + data[at + len(part) :]


def everything_read(log: DataLog, frames: list[Frame]) -> bool:
    for partition in (1, 2, 3):
        payloads = [bytes(f.payloads[0]) for f in frames if f.directory[0].partition == partition]
        try:
            found = whole(log.read_cold(partition, 0, 1 << 30, 1 << 40).buffers)
        except CorruptLog:
            return False
        if found != b"".join(payloads):
            return False
    return True


@pytest.mark.parametrize("checkpoints", [False, True])
def test_any_damage_is_refused_repaired_or_seen(checkpoints: bool, tmp_path: Path) -> None:
    world = closed_world(checkpoints)
    image, rng = world.disk.now(), random.Random(11)
    on_disk(image, tmp_path)
    refused = served = 0
    for _ in range(600):
        name = rng.choice(sorted(image.files))
        disk = damaged(image, name, damage(image.files[name], rng))
        if disk.now().files[name] == image.files[name]:
            continue
        (tmp_path / name).write_bytes(disk.now().files[name])
        seen = rot_is_seen(tmp_path)
        (tmp_path / name).write_bytes(image.files[name])
        try:
            log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
        except (CorruptLog, NewerFormat) as error:
            refused += 1
            assert name in str(error) or "segment" in str(error), f"{name}: {error}"
            assert seen, f"{name}: {error}"
            continue
        served += 1
        assert log.last_index == len(world.frames), f"{name}: {log.last_index} frames"
        assert log.chain == chains(world.frames)[-1]
        after = log.checkpoint.index if log.checkpoint else 0
        assert all(map(same, log.replay(), world.frames[after:]))
        if not everything_read(log, world.frames):
            # Below the checkpoint nothing is scanned at open: consumers' own CRC and `verify` see it.
            assert checkpoints and seen, name
    assert refused > 50 and served > 50
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == image.files


def test_corruption_names_file_and_place_and_a_torn_tail_is_cut(tmp_path: Path) -> None:
    world = World()
    frames = [world.make.data((1, 1, bytes([i + 1]) * 300)) for i in range(6)]
    for frame in frames:
        world.append(frame)
        world.flush()
    image = world.disk.now()
    name = "0000000000000001.segment"
    data = image.files[name]
    places = [data.index(bytes([i + 1]) * 300) for i in range(6)]
    for i in range(6):
        bad = data[: places[i] + 7] + b"?" + data[places[i] + 8 :]
        verdict = inspect.verify(on_disk(damaged(image, name, bad).now(), tmp_path), GROUP)
        if i < 5:
            with pytest.raises(CorruptLog, match=rf"{name} byte \d+: partition 1 offset {i}.*flushed up to"):
                DataLog.open(DIRECTORY, GROUP, OPTIONS, damaged(image, name, bad))
            (rot,) = verdict.corruption
            assert name in rot and f"partition 1 offset {i}" in rot
        else:
            # No marker speaks of the last write yet, so it cannot be told from a torn one.
            log = DataLog.open(DIRECTORY, GROUP, OPTIONS, damaged(image, name, bad))
            assert log.last_index == 5
            assert (verdict.is_corrupt, verdict.frames, verdict.ends_at) == (False, 5, log.report.end_text)
    world.idle()
    bad = world.disk.now().files[name].replace(bytes([6]) * 300, bytes([9]) * 300)
    with pytest.raises(CorruptLog, match="batch does not match"):
        DataLog.open(DIRECTORY, GROUP, OPTIONS, damaged(world.disk.now(), name, bad))


def test_frames_of_another_place_or_group_never_verify() -> None:
    """The chain: frames of equal length swapped, and another group's segment, are refused."""
    world = World()
    for i in range(4):
        world.append(world.make.data((1, 1, bytes([i]) * 300)))
        world.flush()
    world.log.close()
    image = world.disk.now()
    name = "0000000000000001.segment"
    data = bytearray(image.files[name])
    width = data.index(bytes([2]) * 300) - data.index(bytes([1]) * 300)
    second = data.index(bytes([1]) * 300) + 300 - (width - 44)
    first, other = bytes(data[second - width : second - 44]), bytes(data[second : second + width - 44])
    data[second - width : second - 44], data[second : second + width - 44] = other, first
    with pytest.raises(CorruptLog, match="does not continue the chain"):
        DataLog.open(DIRECTORY, GROUP, OPTIONS, damaged(image, name, bytes(data)))
    with pytest.raises(CorruptLog, match="belongs to log group 3, not 4"):
        DataLog.open(DIRECTORY, 4, OPTIONS, SimulatedFileSystem(image))


@each_case("byte", [0, 7, 8, 11])
def test_corruption_in_an_offset_or_a_length_is_seen_by_the_read(byte: int) -> None:
    """Below the checkpoint nothing is scanned at open, and a batch's own CRC leaves its first bytes out."""
    world = closed_world()
    image = world.disk.now()
    name = "0000000000000002.segment"
    payload = bytes(next(f for f in world.frames if image.files[name].find(f.payloads[0]) >= 0).payloads[0])
    data = bytearray(image.files[name])
    data[data.index(payload) + byte] ^= 0x20
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, damaged(image, name, bytes(data)))
    log._reader.scan_for_damage(2, lambda count: None)
    (damage,) = log.damage.known()
    with pytest.raises(DamagedBatch, match=rf"{name} byte \d+: the batch at offset \d+ does not verify"):
        log.read_cold(damage.local_id, damage.first_offset, 1 << 30, 1 << 40)


def test_a_corrupt_newest_checkpoint_costs_a_longer_replay() -> None:
    world = closed_world()
    image = world.disk.now()
    names = sorted(n for n in image.files if n.startswith("checkpoint-"))
    assert len(names) == 2
    disk = damaged(image, names[1], image.files[names[1]][:-1])
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    assert log.checkpoint is not None and log.checkpoint.index == 19
    assert log.report.ignored_checkpoints == (names[1],)
    assert len(list(log.replay())) == 21
    log.write_checkpoint(Checkpoint(40, 1, log.next_lsn, log.chain, 0, {"state": b""}))
    assert sorted(n for n in disk.list_dir(DIRECTORY) if n.startswith("checkpoint-"))[-1].endswith("40")


def test_a_copy_that_the_disk_cannot_read_is_what_the_other_is_there_for() -> None:
    world = closed_world()
    image = world.disk.now()
    newest = sorted(n for n in image.files if n.startswith("checkpoint-"))[1]
    failed: set[str] = set()

    def bad_sectors(what: str, name: str) -> OSError | None:
        if what != "read" or name not in ("state", newest) or name in failed:
            return None
        failed.add(name)  # the first of two slots
        return OSError(errno.EIO, "Input/output error")

    disk = SimulatedFileSystem(image)
    disk.fault = bad_sectors
    log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    assert failed == {"state", newest}
    assert log.report.damaged_slot and log.report.ignored_checkpoints == (newest,)
    assert log.checkpoint is not None and log.checkpoint.index == 19
    for number in (errno.EMFILE, errno.EACCES):
        disk = SimulatedFileSystem(image)
        disk.fault = lambda what, name, number=number: OSError(number, "no") if what == "read" else None
        with pytest.raises(OSError, match="no"):
            DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)


@each_case("kind", ["state", "checkpoint-"])
def test_where_every_copy_is_unread_or_broken_nothing_is_given_up(kind: str) -> None:
    """A read that fails may succeed another time; a log that is called corrupt is replaced."""
    image = closed_world().disk.now()
    for broken in (False, True):
        disk = SimulatedFileSystem(image)
        if broken and kind == "state":  # by a crash, one of its two slots
            disk = damaged(image, "state", b"x" * 4096 + image.files["state"][4096:])
        reads: list[str] = []

        def unread(
            what: str, name: str, spared: int = int(broken), reads: list[str] = reads
        ) -> OSError | None:
            if what != "read" or not name.startswith(kind):
                return None
            reads.append(name)
            return OSError(errno.EIO, "no") if kind != "state" or len(reads) > spared else None

        disk.fault = unread
        with pytest.raises(OSError, match="no"):
            DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)


def test_what_is_refused_leaves_no_file_open() -> None:
    image = closed_world(checkpoints=False).disk.now()
    name = "0000000000000002.segment"
    data = bytearray(image.files[name])
    data[5000] ^= 1
    disk = damaged(image, name, bytes(data))
    with pytest.raises(CorruptLog):
        DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    assert not disk._open


def test_names_are_made_durable_before_anything_rests_on_them() -> None:
    """A file may have got its name right before the process was killed, and the power goes later."""
    disk = SimulatedFileSystem(closed_world().disk.now())
    DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
    first_save = next(at for at, each in enumerate(disk.record) if isinstance(each, Write))
    assert any(isinstance(each, FlushNames) for each in disk.record[:first_save])


def test_a_missing_segment_or_state_file_is_named() -> None:
    image = closed_world(checkpoints=False).disk.now()
    for name in ("0000000000000002.segment", "state"):
        files = {n: d for n, d in image.files.items() if n != name}
        with pytest.raises(CorruptLog, match=r"state file|segment"):
            DataLog.open(DIRECTORY, GROUP, OPTIONS, SimulatedFileSystem(Image(files)))


@each_case("checkpoints", [False, True])
def test_a_segment_cut_short_is_named(checkpoints: bool) -> None:
    """Segments have their full size before they are used, so no crash leaves a shorter one. Below the
    checkpoint it costs what was in it (`test_lost_segments`), above that nobody knows what was there."""
    world = closed_world(checkpoints)
    image = world.disk.now()
    in_use = [n for n in sorted(image.files) if n.endswith(".segment")][:-1]
    assert len(in_use) > 3
    replayed = segment_of(world.log._maintenance.checkpoints[-1].position) if checkpoints else 1
    for name in in_use:
        for size in (0, 100, 5_000, len(image.files[name]) - 1):
            disk = damaged(image, name, image.files[name][:size])
            if int(name.removesuffix(".segment")) < replayed:
                log = DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)
                assert log.last_index == 40
                assert [each.local_id for each in log.damage.known()] == [] or name in log.report.lost_files[
                    0
                ]
                continue
            with pytest.raises(CorruptLog, match=name):
                DataLog.open(DIRECTORY, GROUP, OPTIONS, disk)


@each_case("flush", [True, False])
def test_a_log_without_its_only_segment_is_not_a_new_one(flush: bool) -> None:
    options = replace(OPTIONS, flush=flush)
    disk = SimulatedFileSystem()
    DataLog.open(DIRECTORY, GROUP, options, disk)  # and nothing after it: a kill
    image = disk.now()
    name = "0000000000000001.segment"
    with pytest.raises(CorruptLog, match=rf"{name}.*flushed up to segment 1"):
        DataLog.open(DIRECTORY, GROUP, options, damaged(image, name, bytes(len(image.files[name]))))
    files = {n: d for n, d in image.files.items() if n != name}
    with pytest.raises(CorruptLog, match=name):
        DataLog.open(DIRECTORY, GROUP, options, SimulatedFileSystem(Image(files)))


def test_inspection_shows_every_frame_and_an_undamaged_log_is_ok(tmp_path: Path) -> None:
    world = closed_world()
    on_disk(world.disk.now(), tmp_path)
    shown = [scanned.frame() for _, scanned in inspect.GroupLog(tmp_path, GROUP).frames()]
    assert len(shown) == 40 and all(map(same, shown, world.frames))
    verdict = inspect.verify(tmp_path, GROUP)
    assert (verdict.is_corrupt, verdict.notes, verdict.frames) == (False, [], 40)
