"""Plants in compaction, held against the `compacting` workload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from lockstep.protocol.records.batch_filter import FilteredBatch, OpenedBatch, RecordSpan, filter_batch
from lockstep.storage import compaction_rules
from lockstep.storage.compaction_rules import OffsetMap
from tests.sim.faces import Plant

OFTEN = {"segment_bytes": 32768, "nodes": 3, "think_ms": 30}


@contextmanager
def last_record_goes() -> Iterator[None]:
    """The last record of a key is taken for an older one."""
    with patch.object(OffsetMap, "last_offset", lambda self, key: self._offsets.get(key, -2) + 1):
        yield


@contextmanager
def first_record_stays() -> Iterator[None]:
    """The map has the last offset of a batch that came before."""
    real = OffsetMap.note

    def note(self: OffsetMap, spans: Iterable[RecordSpan]) -> bool:
        return real(self, [span for span in spans if span.key not in self._offsets])

    with (
        patch.object(OffsetMap, "note", note),
        patch.object(OffsetMap, "last_offset", lambda self, key: _exactly(self._offsets.get(key, -1))),
    ):
        yield


class _exactly(int):
    """Only the record with this very offset is at or above it."""

    def __le__(self, offset: int) -> bool:
        return self == -1 or int(self) == offset


@contextmanager
def shortened_by_place() -> Iterator[None]:
    """A shortened batch has the first of its records, as many as were to stay."""

    def first_ones(
        batch: OpenedBatch, kept: Sequence[RecordSpan], horizon_ms: int | None = None
    ) -> FilteredBatch:
        return filter_batch(batch, batch.spans[: len(kept)], horizon_ms)

    with patch.object(compaction_rules, "filter_batch", first_ones):
        yield


PLANTS = (
    Plant(
        "last-record-cleaned",
        "the newest record of a key is taken for an older one",
        last_record_goes,
        workload="compacting",
        overrides=OFTEN,
        source="the specification: cleaning",
    ),
    Plant(
        "first-record-kept",
        "of several records of a key the first one stays",
        first_record_stays,
        workload="compacting",
        overrides=OFTEN,
        source="the specification: cleaning",
    ),
    Plant(
        "shortened-by-place",
        "a shortened batch keeps its first records, not those that are to stay",
        shortened_by_place,
        workload="compacting",
        overrides=OFTEN,
        source="decision 22",
    ),
)
