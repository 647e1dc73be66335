"""A checkpoint from one log into another, piece by piece; losing some is the simulator's."""

from __future__ import annotations

from pathlib import Path

from storage.checkpointing import CONFIGURATION_SECTION
from storage.log.data_log import DataLog
from storage.shipping import Arrival, Shipment
from storage.types import Checkpoint
from tests.storage.log.crash_world import GROUP, OPTIONS
from tests.storage.log.frames import FrameMaker
from tests.storage.log.simulated_disk import SimulatedFileSystem

LIVE, DELETED = 1, 2


def shipped(log: DataLog) -> tuple[DataLog, Arrival]:
    """Another log that became what this one's newest checkpoint says."""
    checkpoint = log.load_checkpoint()
    assert checkpoint is not None
    shipment = Shipment(log, checkpoint)
    there = DataLog.open(Path("there"), GROUP, OPTIONS, SimulatedFileSystem())
    arrival = Arrival(there, checkpoint.index, checkpoint.term)
    for chunk in range(100):
        found = shipment.piece(chunk)
        assert found is not None
        arrival.store(*found)
        if found[1]:
            break
    arrival.switch()
    return there, arrival


def grown(deleted_first: bool) -> DataLog:
    """A log of which the frames of one partition, before the other's or after them, are freed. Its checkpoint
    is of the last frame."""
    log, make = DataLog.open(Path("here"), GROUP, OPTIONS, SimulatedFileSystem()), FrameMaker()
    for partition in (DELETED, LIVE) if deleted_first else (LIVE, DELETED):
        for _ in range(30):
            log.append([make.data((partition, 1, b"x" * 800))])
        assert log.seal()
    log.flush()
    sections = {CONFIGURATION_SECTION: b"members"}
    for _ in range(2):
        log.write_checkpoint(
            Checkpoint(log.last_index, log.last_term, log.next_lsn, log.chain, log.last_time_ms, sections)
        )
    assert log.free_dead_segments(lambda number: 1 << 62 if number == DELETED else 0) >= 2
    return log


def test_the_last_frames_of_a_checkpoint_may_be_freed() -> None:
    log = grown(deleted_first=False)
    there, arrival = shipped(log)
    assert (there.last_index, there.chain) == (log.last_index, log.chain)
    assert there.segments()[-1].last_index == 30
    assert arrival.first_index == 1


def test_the_first_frame_tells_what_the_leader_has_freed() -> None:
    log = grown(deleted_first=True)
    there, arrival = shipped(log)
    assert (there.last_index, there.chain) == (log.last_index, log.chain)
    assert arrival.first_index == there.oldest_index == 31


def test_a_checkpoint_without_any_frames() -> None:
    log = grown(deleted_first=False)
    assert log.free_dead_segments(lambda number: 1 << 62) >= 2
    there, arrival = shipped(log)
    assert (there.last_index, there.chain) == (log.last_index, log.chain)
    assert arrival.first_index == log.last_index + 1
