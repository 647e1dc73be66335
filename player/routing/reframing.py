"""A router over record batches: for each target a batch with its own records alone.

Owns: what a choice may return, and the batches made from it. Invariants: what a target gets of a record are
its very bytes, with its offset and its time, unless the choice gives it another value; a target that gets all
records of a batch gets that batch, untouched; a record without targets goes to nobody; the same batch gives
the same parts at every time, also after compaction has taken records from it.

A batch made here is not compressed up to `PLAIN_BYTES` of records: compressing would cost more time than it
saves on the way. A larger one gets the codec that its batch had, so that a part is not much larger than what
a producer was allowed to send, whatever bound a transport has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from player.core.messages import Entry, Part
from player.core.routing import BadRoute, Parts
from player.routing.seam import Choice
from protocol.records.batch import Buffer
from protocol.records.compression import Codec
from protocol.records.filtering import Opened, newest_of, opened, remade, with_value
from protocol.records.record import Record, records_in

PLAIN_BYTES: Final = 256 * 1024


class RouteFailed(ValueError):
    """A choice raised an error, or a batch cannot be read."""


class Reframing:
    """See the module. What it raises ends a playing: RouteFailed, BadRoute."""

    __slots__ = ("_choice",)

    def __init__(self, choice: Choice) -> None:
        self._choice = choice

    def __call__(self, entry: Entry) -> Parts:
        payload = entry.payload
        assert isinstance(payload, bytes)
        try:
            batch = opened(payload)
            records = list(records_in(batch.header, batch.data))
        except ValueError as error:
            raise RouteFailed(f"the batch at {entry.position} cannot be read: {error}") from error
        shares = self._shares(records)
        parts = []
        for name, share in shares.items():
            made = share.made(batch, payload)
            parts.append((name, Part(entry.position, made, len(made))))
        return parts

    def _shares(self, records: Sequence[Record]) -> dict[str, _Share]:
        shares: dict[str, _Share] = {}
        for place, record in enumerate(records):
            chosen = self._chosen(record)
            for name in chosen:
                share = shares.get(name)
                if share is None:
                    share = shares[name] = _Share()
                share.add(place)
            if isinstance(chosen, dict):
                for name, value in chosen.items():
                    if value != record.value:
                        shares[name].values[place] = value
        return shares

    def _chosen(self, record: Record) -> Sequence[str] | dict[str, bytes | None]:
        """What the choice says of a record, if it may say that."""
        try:
            chosen = self._choice(record)
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


class _Share:
    """What one target gets of a batch."""

    __slots__ = ("places", "values")

    def __init__(self) -> None:
        self.places: list[int] = []
        self.values: dict[int, bytes | None] = {}
        """By place: what a record has instead of its value."""

    def add(self, place: int) -> None:
        if not self.places or self.places[-1] != place:  # a name that is said twice is said once
            self.places.append(place)

    def made(self, batch: Opened, payload: bytes) -> bytes:
        """The batch for it."""
        values, parts, data = self.values, batch.parts, batch.data
        if not values and len(self.places) == len(parts):
            return payload
        kept = [parts[place] for place in self.places]
        records: list[Buffer] = [data[part.start : part.end] for part in kept]
        if values:
            for at, place in enumerate(self.places):
                if place in values:
                    records[at] = with_value(batch, parts[place], values[place])
        body = b"".join(records)
        codec = Codec.NONE if len(body) <= PLAIN_BYTES else Codec(batch.header.codec)
        return remade(batch.header, body, len(kept), newest_of(batch, kept), codec)
