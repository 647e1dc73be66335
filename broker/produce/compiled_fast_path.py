"""The fast path of Produce with the C extension, where it is built: which classes a broker uses.

Owns: the choice, made once at the import. Invariants: the extension (`fast_path.c`) holds the common case of
a few methods of `CompiledConnection`, `CompiledRequests` and `CompiledFastPath`, and calls the Python method
for all else, on the same objects; without it those three are their Python bases. Does not: find the extension
(`lockstep/extension.py`) or build it (`requirements/build_extension.py`).
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

from lockstep.broker.network.connection import Connection
from lockstep.broker.network.response_encoder import JOIN_BELOW_BYTES
from lockstep.broker.process.wall_clock import wall_clock_ms
from lockstep.broker.produce import produce_fast_path
from lockstep.broker.produce.batch_validation import MIN_RECORD_BYTES
from lockstep.broker.produce.plain_topic import PlainPartition, PlainTopic
from lockstep.broker.produce.produce_fast_path import (
    PlainRequests,
    PlainResponse,
    ProduceFastPath,
    RequestPrefix,
)
from lockstep.broker.produce.producer_state import Producer
from lockstep.broker.requests.time_slices import TIME_SLICE_SECONDS
from lockstep.extension import load
from lockstep.protocol import frame_reader
from lockstep.protocol.frame_reader import FrameReader
from lockstep.protocol.records import batch
from lockstep.storage.applier import Applier
from lockstep.storage.log.format import MAX_FRAME_RECORDS
from lockstep.storage.open_frame import OpenFrame
from lockstep.storage.partition import PartitionLog
from lockstep.storage.plain_appends import PlainAppends
from lockstep.storage.served_leadership import ServedLeadership
from lockstep.storage.types import ENTRY_BYTES
from lockstep.storage.waiters import OpenWaiters


class CompiledConnection(Connection):
    """A connection with methods of the extension."""

    __slots__ = ()


class CompiledRequests(PlainRequests):
    """The plain requests of one connection, with methods of the extension."""

    __slots__ = ()


class CompiledFastPath(ProduceFastPath):
    """The fast path with methods of the extension."""

    __slots__ = ()
    requests_type = CompiledRequests


_CLASSES: Final = (
    Connection, FrameReader, PlainRequests, RequestPrefix, ProduceFastPath, PlainTopic, PlainPartition,
    PlainResponse, PartitionLog, PlainAppends, ServedLeadership, OpenFrame, Applier, OpenWaiters, Producer,
)  # fmt: skip
"""Those whose attributes the extension reads and sets."""
_CONSTANTS: Final = {
    "BATCH_HEADER_BYTES": batch.BATCH_HEADER_BYTES,
    "CORRELATION_END": produce_fast_path.CORRELATION_END,
    "CRC_START": produce_fast_path.CRC_START,
    "CURRENT_MAGIC": batch.CURRENT_MAGIC,
    "ENTRY_BYTES": ENTRY_BYTES,
    "JOIN_BELOW_BYTES": JOIN_BELOW_BYTES,
    "LENGTH_BYTES": frame_reader.LENGTH_BYTES,
    "LENGTH_PREFIX_BYTES": batch.LENGTH_PREFIX_BYTES,
    "MAX_BYTE_LENGTH": produce_fast_path.MAX_BYTE_LENGTH,
    "MAX_FRAME_RECORDS": MAX_FRAME_RECORDS,
    "MAX_REQUEST_BYTES": produce_fast_path.MAX_REQUEST_BYTES,
    "MIN_BUFFER_BYTES": frame_reader.MIN_BUFFER_BYTES,
    "MIN_RECORD_BYTES": MIN_RECORD_BYTES,
    "READS_BEFORE_SHRINK": frame_reader.READS_BEFORE_SHRINK,
    "SEQUENCE_MASK": produce_fast_path.SEQUENCE_MASK,
    "TIME_SLICE_SECONDS": TIME_SLICE_SECONDS,
}
_FUNCTIONS: Final = {"crc32c": crc32c, "wall_clock_ms": wall_clock_ms}

CONNECTION: type[Connection] = Connection
FAST_PATH: type[ProduceFastPath] = ProduceFastPath

_extension, _ = load()
if _extension is not None:
    _extension.bind(
        {each.__name__: each for each in _CLASSES},
        _CONSTANTS,
        _FUNCTIONS,
        (CompiledConnection, CompiledRequests, CompiledFastPath),
    )
    CONNECTION, FAST_PATH = CompiledConnection, CompiledFastPath
