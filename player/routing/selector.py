"""The interface of a function that chooses a record's targets.

The router of the core (`lockstep.player.core.router.Router`) takes an entry and returns a part for each
target: a record batch with that target's records alone, which keep their offsets and times. Where all records
go to one target, the part is the batch itself, untouched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lockstep.protocol.records.record import Record


class TargetSelector(Protocol):
    """For one record its targets, by name; a function of the record alone, the same at every time."""

    def __call__(self, record: Record) -> Sequence[str] | dict[str, bytes | None]:
        """Names, a list or a tuple: each gets the record. A dict: each gets it with that value instead."""
