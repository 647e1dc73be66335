"""Steps of a follower for `python -m bench micro`: a frame from its Append to its commit, without Raft.

Owns: frames as a leader makes them, and the log, machines and partitions that they are given to. Nothing is
flushed or sent. Each step is the mean of its quicker frames: other work on the machine is in the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from bench.load.wire import record_batch
from bench.settings import RECORD_BYTES
from lockstep.broker.locks.lock_table import LockTable
from lockstep.broker.produce.producer_state import ProducerState
from lockstep.protocol.records.batch import read_header
from lockstep.storage.append_codec import unpack
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import encode_frame_head, frame_buffers
from lockstep.storage.log.options import LogOptions
from lockstep.storage.open_frame import OpenFrame
from lockstep.storage.partition import PartitionLog
from lockstep.storage.raft.messages import Append
from lockstep.storage.state_machines import StateMachines

BATCHES = 8192
"""Of all frames of a step."""
KEPT_SHARE = 0.25
_PRODUCER = Struct(">qhi")
_PRODUCER_AT, _CRC_AT, _CRC_FROM = 43, 17, 21
_TIME_MS = 1_700_000_000_000


def _batch(records: int, producer_id: int, sequence: int) -> bytearray:
    made = bytearray(record_batch(records, RECORD_BYTES, _TIME_MS))
    if producer_id >= 0:
        _PRODUCER.pack_into(made, _PRODUCER_AT, producer_id, 0, sequence)
        made[_CRC_AT:_CRC_FROM] = crc32c(made[_CRC_FROM:]).to_bytes(4, "big")
    return made


def _appends(chain: int, batches: int, records: int, partitions: int, producers: int) -> Iterator[Append]:
    """Yields a leader's messages: frames of so many batches, of the partitions in turn."""
    open_frame = OpenFrame(16 << 20, lambda: _TIME_MS)
    logs = [PartitionLog(number + 1, b"t" * 16, number) for number in range(partitions)]
    lsn, sequences = 1, [0] * max(1, producers)
    for index in range(1, BATCHES // batches // records + 1):
        for number in range(batches):
            producer = number % producers if producers else -1
            made = _batch(records, producer, sequences[producer])
            sequences[producer] += records
            open_frame.close_if_full(len(made), records)
            open_frame.add(logs[number % partitions], made, read_header(made), 0)
        (frame,) = open_frame.take()
        frame.index, frame.term, frame.first_lsn = index, 1, lsn
        lsn += frame.record_count
        before = chain
        frame.head, chain = encode_frame_head(frame, chain)
        data = b"".join(frame_buffers(frame))
        yield Append(2, 1, 1, index - 1, int(index > 1), [(index, 1)], index, [], 0, 0, [data], before)


def follow(directory: Path, batches: int, records: int = 1, partitions: int = 1, producers: int = 0) -> float:
    """Microseconds of a frame of so many batches: checked, written, indexed, replayed, applied.

    Args:
        producers: how many idempotent producers wrote the batches; 0 for none.
    """
    log = DataLog.open(directory, 1, LogOptions(flush=False))
    state = StateMachines({}, {"producers": ProducerState(86_400_000), "locks": LockTable()})
    for number in range(1, partitions + 1):
        state.control.partitions[number] = PartitionLog(number, b"t" * 16, number - 1)
    state.control.next_local_id = partitions + 1
    taken = []
    for append in [*_appends(log.chain, batches, records, partitions, producers)]:
        began = time.perf_counter()
        frames = unpack(append)
        log.append(frames)
        for frame in frames:
            state.replay_appended(frame)
            state.apply_committed(frame, {})
        taken.append(time.perf_counter() - began)
    log.close()
    kept = sorted(taken)[: int(len(taken) * KEPT_SHARE)]
    return sum(kept) / len(kept) * 1e6


def follower_steps(parent: Path) -> Iterator[tuple[str, float]]:
    """(step, microseconds) of each."""
    for name, arguments in {
        "1 x 1 KB": (1, 1, 1, 0),
        "16 x 1 KB": (16, 1, 1, 0),
        "64 x 1 KB": (64, 1, 1, 0),
        "64 x 1 KB of 16 idempotent producers": (64, 1, 1, 16),
        "64 x 1 KB of 16 partitions in turn": (64, 1, 16, 0),
        "16 x 15 KB": (16, 15, 1, 0),
    }.items():
        yield f"frame followed, {name}", follow(parent / f"follow {name}", *arguments)
