"""The choice that stands on the record: a header `lockstep-targets` with the names of its targets.

Owns: how such a header is read. `a,b`: each of them gets the record; spaces around a name do not count; the
header may be repeated, which is as if all its names stood in one. A header that names nobody says so: the
default is for records without any. Does not: know which targets there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.records.record import Record

TARGETS_HEADER: Final = "lockstep-targets"


class HeaderChoice:
    """A `Choice`.

    Args:
        default: who gets the records without the header; nobody, where that is empty.
        name: of the header.
    """

    __slots__ = ("_default", "_name")

    def __init__(self, default: Sequence[str] = (), name: str = TARGETS_HEADER) -> None:
        self._default = tuple(default)
        self._name = name

    def __call__(self, record: Record) -> Sequence[str]:
        wanted = self._name
        said = [value for name, value in record.headers if name == wanted]
        if not said:
            return self._default
        texts = [(value or b"").decode("utf-8", "replace") for value in said]
        return [name for text in texts for each in text.split(",") if (name := each.strip())]
