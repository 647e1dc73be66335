"""A checkpoint from one log into another, piece by piece; losing some is the simulator's."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.storage import snapshot_transfer
from lockstep.storage.checkpointer import CONFIGURATION_SECTION
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.snapshot_chunk import ChunkPayload, PayloadKind
from lockstep.storage.snapshot_transfer import IncomingSnapshot, OutgoingSnapshot
from lockstep.storage.types import Checkpoint
from tests.storage.log.crash_world import GROUP, OPTIONS
from tests.storage.log.frames import FrameMaker
from tests.storage.log.simulated_disk import SimulatedFileSystem

LIVE, DELETED = 1, 2


def shipped(log: DataLog) -> tuple[DataLog, IncomingSnapshot]:
    """Another log that became what this one's newest checkpoint says."""
    checkpoint = log.load_checkpoint()
    assert checkpoint is not None
    shipment = OutgoingSnapshot(log, checkpoint)
    there = DataLog.open(Path("there"), GROUP, OPTIONS, SimulatedFileSystem())
    incoming = IncomingSnapshot(there, checkpoint.index, checkpoint.term)
    for chunk in range(100):
        found = shipment.read_chunk(chunk)
        assert found is not None
        incoming.store(*found)
        if found[1]:
            break
    incoming.switch()
    return there, incoming


def grown(deleted_first: bool, freed: bool = True) -> DataLog:
    """A log of which the frames of one partition, before the other's or after them, are freed, or can be. Its
    checkpoint is of the last frame."""
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
    if freed:
        free(log)
    return log


def free(log: DataLog) -> None:
    assert log.free_deleted_segments(lambda number: 1 << 62 if number == DELETED else 0) >= 2


def begun(log: DataLog, until_index: int) -> tuple[OutgoingSnapshot, IncomingSnapshot]:
    """Under way, up to a piece that ends with this frame or one behind it."""
    checkpoint = log.load_checkpoint()
    assert checkpoint is not None
    shipment = OutgoingSnapshot(log, checkpoint)
    there = DataLog.open(Path("there"), GROUP, OPTIONS, SimulatedFileSystem())
    incoming = IncomingSnapshot(there, checkpoint.index, checkpoint.term)
    while shipment._after < until_index:
        found = shipment.read_chunk(shipment.chunk + 1)
        assert found is not None and not found[1]
        incoming.store(*found)
    return shipment, incoming


def test_the_last_frames_of_a_checkpoint_may_be_freed() -> None:
    log = grown(deleted_first=False)
    there, incoming = shipped(log)
    assert (there.last_index, there.chain) == (log.last_index, log.chain)
    assert there.segments()[-1].last_index == 30
    assert incoming.first_index == 1


def test_the_first_frame_shows_what_the_leader_has_freed() -> None:
    log = grown(deleted_first=True)
    there, incoming = shipped(log)
    assert (there.last_index, there.chain) == (log.last_index, log.chain)
    assert incoming.first_index == there.oldest_index == 31


def test_what_is_left_may_be_freed_while_it_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", 2048)
    log = grown(deleted_first=False, freed=False)
    shipment, incoming = begun(log, 40)
    free(log)
    found = shipment.read_chunk(shipment.chunk + 1)
    assert found is not None
    assert (found[0].data, found[1]) == ([], True), "there is an end, though nothing more is there"
    incoming.store(*found)
    assert incoming.whole and incoming.switch().index == log.last_index
    assert (incoming._log.last_index, incoming._log.chain) == (log.last_index, log.chain)


def test_pieces_of_another_shipment_leave_no_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less is there to ship meanwhile, so that the same chunk has other frames."""
    monkeypatch.setattr(snapshot_transfer, "CHUNK_BYTES", 2048)
    log = grown(deleted_first=True, freed=False)
    _, incoming = begun(log, 10)
    free(log)
    another, _ = begun(log, 32)
    found = None
    while another.chunk < incoming.next_chunk:
        found = another.read_chunk(another.chunk + 1)
    assert found is not None and another.chunk == incoming.next_chunk and found[0].after > 30
    with pytest.raises(ValueError, match="it has entries up to"):
        incoming.store(*found)


def test_a_chunk_without_its_predecessor_is_rejected() -> None:
    log = grown(deleted_first=True)
    shipment, incoming = begun(log, 0)
    head = shipment.read_chunk(0)
    assert head is not None
    incoming.store(*head)
    with pytest.raises(ValueError, match="does not name the entry"):
        incoming.store(ChunkPayload(PayloadKind.FRAMES, [], 0, -1), False)


def test_a_checkpoint_without_any_frames() -> None:
    log = grown(deleted_first=False)
    assert log.free_deleted_segments(lambda number: 1 << 62) >= 2
    there, incoming = shipped(log)
    assert (there.last_index, there.chain) == (log.last_index, log.chain)
    assert incoming.first_index == log.last_index + 1
