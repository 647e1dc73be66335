"""A routing function for tests: a record's value begins with the one-letter names of its targets."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.protocol.records.record import Record


def targets_of(record: Record) -> Sequence[str]:
    """`ab:1` is for a and b, `:2` for nobody."""
    return list((record.value or b"").partition(b":")[0].decode())
