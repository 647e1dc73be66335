"""The selector by a record's header `lockstep-targets`, which has the names of its targets.

Owns: the parsing of the header. `a,b`: each of them gets the record; spaces around a name do not count; a
repeated header is as one with all the names. A record with an empty header goes to no target: the default is
for records without the header. Does not: know which targets exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lockstep.protocol.records.record import Record

TARGETS_HEADER: Final = "lockstep-targets"


class HeaderSelector:
    """A `TargetSelector`.

    Args:
        default: the targets of records without the header; none, where that is empty.
        name: of the header.
    """

    __slots__ = ("_default", "_name")

    def __init__(self, default: Sequence[str] = (), name: str = TARGETS_HEADER) -> None:
        self._default = tuple(default)
        self._name = name

    def __call__(self, record: Record) -> Sequence[str]:
        header_name = self._name
        values = [value for name, value in record.headers if name == header_name]
        if not values:
            return self._default
        texts = [(value or b"").decode("utf-8", "replace") for value in values]
        return [name for text in texts for each in text.split(",") if (name := each.strip())]
