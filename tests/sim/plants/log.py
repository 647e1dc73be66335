"""Plants in the data log: those of `tests/storage/log/planted_faults.py` that a running group suffers from.

They are shown to crash-state enumeration there, one crash at a time; here to whole histories.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from lockstep.storage.flusher import Flusher
from lockstep.storage.log import recovery
from lockstep.storage.log.batch_index import BatchIndex
from lockstep.storage.log.file_system import FileSystem
from lockstep.storage.log.format import position_of
from lockstep.storage.log.recovery import Recovery
from lockstep.storage.log.segments import Segment
from lockstep.storage.log.startup_cleanup import flush_scanned
from tests.sim.faces import Plant
from tests.sim.plants.raft import replaced
from tests.storage.log.planted_faults import FAULTS

POWER = {"faults": ("power loss", "power loss all", "cut mid-write", "kill"), "fault_every_ms": 600}
"""What is not flushed goes, again and again."""


ALONE = {**POWER, "nodes": 1, "think_ms": 100, "rot": False}
"""Nobody else's copy covers up what one disk lost."""
TORN = {**ALONE, "faults": ("cut mid-write",), "fault_every_ms": 300, "think_ms": 50}
"""Power goes in the middle of writes."""
CUTS = {"faults": ("isolate leader", "kill", "power loss", "partition"), "fault_every_ms": 600, "nodes": 3}


@contextmanager
def flush_skipped() -> Iterator[None]:
    """Entries count as flushed when they are written."""
    with patch.object(Flusher, "_flush", lambda self: None):
        yield


@contextmanager
def index_kept() -> Iterator[None]:
    """A truncated segment's index still points at what was cut."""
    real = BatchIndex.below

    def below(self: BatchIndex, end: int) -> BatchIndex | None:
        return real(self, 1 << 62)

    with patch.object(BatchIndex, "below", below):
        yield


def _flush_only(fs: FileSystem, segment: Segment, promise: int) -> None:
    """Flushes what was read of a segment as if a marker promised all of it, so that nothing is written."""
    flush_scanned(fs, segment, position_of(segment.sequence, segment.end))


def _fault(name: str, what: str, source: str, overrides: Mapping[str, object] = POWER) -> Plant:
    return Plant(name.replace("_", "-"), what, FAULTS[name], overrides=overrides, source=source)


PLANTS = (
    Plant(
        "flush-skipped",
        "what is written counts as flushed",
        flush_skipped,
        overrides=POWER,
        source="reliability: negative control (eatmydata)",
    ),
    Plant(
        "rot-taken-for-torn",
        "a frame that has rotted ends the log, as a torn write does",
        replaced(Recovery, "_check_end", lambda self, *where: None),
        overrides={"rot": True, "faults": ("rot", "kill"), "fault_every_ms": 300, "nodes": 3},
        source="PAR/CTRL (FAST'18); NATS #7549",
    ),
    Plant(
        "index-kept-over-cut",
        "after a truncation a segment's index still has the batches that were cut",
        index_kept,
        workload="appends",
        overrides={**CUTS, "think_ms": 50, "tail_cache_bytes": 4096},
        source="reliability #20: the index points at a truncated extent",
    ),
    Plant(
        "tail-not-written-again",
        "recovery trusts a page cache that says more than the disk has, and only flushes it once more",
        replaced(recovery, "flush_scanned", _flush_only),
        overrides={
            "stale_cache": True,
            "nodes": 1,
            "rot": False,
            "think_ms": 50,
            "faults": ("failed flush", "power loss", "kill"),
            "fault_every_ms": 600,
        },
        source="Rebello et al., ATC'20: Can applications recover from fsync failures?",
    ),
    _fault("flush_forgotten", "a group commit is acknowledged without its flush", "ATC'20: fsync failures"),
    _fault("hard_state_not_flushed", "a vote counts before it is on the disk", "etcd #10000"),
    _fault("generation_kept", "what recovery cut can be read again", "docs/storage_rules.md: truncation"),
    _fault(
        "cut_without_generation",
        "what was truncated can be read again",
        "docs/storage_rules.md: truncation",
        CUTS,
    ),
    _fault(
        "payload_not_verified",
        "a stale batch counts under a new header",
        "docs/storage_rules.md: stale batch",
        TORN,
    ),
    _fault("recovered_not_flushed", "what recovery read counts as flushed", "ALICE; etcd #13766"),
    _fault("marker_lies", "a marker promises what is not flushed yet", "PAR/CTRL: torn or rotten", ALONE),
)
