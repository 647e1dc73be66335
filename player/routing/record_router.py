"""A router over record batches: for each target a batch with its own records alone.

Owns: the check of a selector's results, and the batches made from them. Invariants: a target gets a record's
own bytes, with its offset and its time, unless the selector gives it another value; a target that gets all
records of a batch gets that batch, untouched; a record without targets is dropped; the same batch gives the
same parts at every time, also after compaction has removed records from it.

A batch made here is not compressed up to `PLAIN_BYTES` of records: compressing would cost more time than it
saves on the way. A larger one gets the codec that its batch had, so that a part is not much larger than what
a producer was allowed to send, whatever bound a transport has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lockstep.player.core.messages import Entry, Part
from lockstep.player.core.router import BadRoute, Parts
from lockstep.player.routing.selector import TargetSelector
from lockstep.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    BatchHeader,
    Buffer,
    MalformedBatch,
    read_header,
)
from lockstep.protocol.records.batch_filter import MAX_RECORDS, rebuild_batch, replace_value
from lockstep.protocol.records.compression import Codec, decompress
from lockstep.protocol.records.record import Record, iter_record_spans

PLAIN_BYTES: Final = 256 * 1024


class RouteFailed(ValueError):
    """A choice raised an error, or a batch cannot be read, or is not: it has more than `MAX_RECORDS`."""


class RecordRouter:
    """See the module. Its errors stop a driver: RouteFailed, BadRoute."""

    __slots__ = ("_selector",)

    def __init__(self, selector: TargetSelector) -> None:
        self._selector = selector

    def __call__(self, entry: Entry) -> Parts:
        payload = entry.payload
        assert isinstance(payload, bytes)
        try:
            header = read_header(payload)
            if header.record_count > MAX_RECORDS:
                text = f"has {header.record_count} records, and is not opened: {MAX_RECORDS} at most"
                raise RouteFailed(f"the batch at {entry.position} {text}")
            data = memoryview(decompress(header.codec, memoryview(payload)[BATCH_HEADER_BYTES:]))
            records = list(iter_record_spans(header, data))
        except MalformedBatch as error:
            raise RouteFailed(f"the batch at {entry.position} cannot be read: {error}") from error
        parts = []
        for name, share in self._target_batches(data, records).items():
            build = share.build(header, payload)
            parts.append((name, Part(entry.position, build, len(build), entry.partition)))
        return parts

    def _target_batches(
        self, data: memoryview, records: Sequence[tuple[int, int, Record]]
    ) -> dict[str, _TargetBatch]:
        shares: dict[str, _TargetBatch] = {}
        for start, end, record in records:
            chosen = self._select(record)
            values = chosen if isinstance(chosen, dict) else None
            for name in chosen:
                share = shares.get(name)
                if share is None:
                    share = shares[name] = _TargetBatch()
                if values is not None and values[name] != record.value:
                    share.add(replace_value(data, start, end, values[name]), record)
                    share.is_untouched = False
                elif share.last is not record:  # a name that is returned twice counts once
                    share.add(data[start:end], record)
        return shares

    def _select(self, record: Record) -> Sequence[str] | dict[str, bytes | None]:
        """The selector's result for a record, checked."""
        try:
            chosen = self._selector(record)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise RouteFailed(f"the choice for the record at {record.offset} failed: {what}") from error
        if isinstance(chosen, dict):
            fits = all(value is None or isinstance(value, bytes) for value in chosen.values())
        else:
            fits = isinstance(chosen, tuple | list)
        if not fits or not all([isinstance(name, str) for name in chosen]):
            raise BadRoute(
                f"the choice for the record at {record.offset} is {chosen!r:.80}: neither a list of names, "
                "nor a dict from names to values in bytes"
            )
        return chosen


class _TargetBatch:
    """One target's records of a batch."""

    __slots__ = ("is_untouched", "last", "max_timestamp", "records")

    def __init__(self) -> None:
        self.records: list[Buffer] = []
        self.last: Record | None = None
        self.max_timestamp = 0
        self.is_untouched = True
        """Whether no record got another value."""

    def add(self, data: Buffer, record: Record) -> None:
        if self.last is None or record.timestamp > self.max_timestamp:
            self.max_timestamp = record.timestamp
        self.last = record
        self.records.append(data)

    def build(self, header: BatchHeader, payload: bytes) -> bytes:
        """The batch for it."""
        records = self.records
        if self.is_untouched and len(records) == header.record_count:
            return payload
        body = b"".join(records)
        codec = Codec.NONE if len(body) <= PLAIN_BYTES else Codec(header.codec)
        return rebuild_batch(header, body, len(records), self.max_timestamp, codec)
