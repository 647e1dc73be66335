"""What a source brings, read to the end."""

from __future__ import annotations

from collections.abc import Sequence

from player.core.messages import Entry
from player.source.seam import Source
from protocol.records.record import Record, iter_records


def records(entries: Sequence[Entry]) -> list[Record]:
    found: list[Record] = []
    for entry in entries:
        assert isinstance(entry.payload, bytes)
        found += iter_records(entry.payload)
    return found


def values(entries: Sequence[Entry]) -> list[bytes | None]:
    return [record.value for record in records(entries)]


async def everything(source: Source, first: int = 0, max_bytes: int = 1 << 20) -> list[Entry]:
    """Read until there is nothing more; each read must bring it further."""
    found: list[Entry] = []
    while True:
        chunk = await source.read(first, max_bytes, 0)
        if chunk.through_position < first:
            assert not chunk.entries
            return found
        assert all(first <= each.position <= chunk.through_position for each in chunk.entries)
        found += chunk.entries
        first = chunk.through_position + 1
