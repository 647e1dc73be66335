"""The members of a group: configurations, and the stack of those that a log holds.

A configuration is in force from its append on, committed or not, and is reverted when its entry is truncated
(Raft paper, section 6): hence a stack, the lowest being the checkpoint's. Owns the bytes of a configuration
entry. Does not decide which configuration may follow which: `membership` does.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

_FORMAT_VERSION = 0
_HEADER = struct.Struct(">BHHH")
MAX_MEMBERS = 1000
"""The most members of each kind; far beyond any group, and far below what could harm a decoder."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Voters, and while these replace others also `old_voters` (joint); learners receive and do not vote."""

    voters: tuple[int, ...]
    old_voters: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()

    @property
    def joint(self) -> bool:
        return bool(self.old_voters)

    @property
    def members(self) -> tuple[int, ...]:
        """All members that receive the log, ascending."""
        return tuple(sorted({*self.voters, *self.old_voters, *self.learners}))

    def voter_sets(self) -> tuple[tuple[int, ...], ...]:
        """The sets of which each needs a majority."""
        return (self.voters, self.old_voters) if self.old_voters else (self.voters,)

    def is_voter(self, member: int) -> bool:
        return member in self.voters or member in self.old_voters

    def encode(self) -> bytes:
        """The payload of a configuration entry."""
        kinds = (self.voters, self.old_voters, self.learners)
        ids = [member for kind in kinds for member in kind]
        return _HEADER.pack(_FORMAT_VERSION, *map(len, kinds)) + struct.pack(f">{len(ids)}q", *ids)

    @staticmethod
    def decode(data: bytes) -> Configuration:
        """Raises ValueError for bytes that are no configuration this code knows."""
        if len(data) < _HEADER.size:
            raise ValueError(f"a configuration of {len(data)} bytes")
        version, *counts = _HEADER.unpack_from(data)
        if version != _FORMAT_VERSION or max(counts) > MAX_MEMBERS:
            raise ValueError(f"a configuration of version {version} with {counts} members")
        if len(data) != _HEADER.size + 8 * sum(counts):
            raise ValueError(f"a configuration of {counts} members in {len(data)} bytes")
        ids = struct.unpack_from(f">{sum(counts)}q", data, _HEADER.size)
        voters, old_voters = counts[0], counts[0] + counts[1]
        return Configuration(ids[:voters], ids[voters:old_voters], ids[old_voters:])


class ConfigurationStack:
    """The configuration in force at each index from the checkpoint on."""

    __slots__ = ("_configurations", "_indices")

    def __init__(self, configuration: Configuration, index: int = 0) -> None:
        """`configuration` is in force at `index`, the checkpoint's, or 0 for the group's first."""
        self._indices = [index]
        self._configurations = [configuration]

    @property
    def current(self) -> Configuration:
        return self._configurations[-1]

    @property
    def current_index(self) -> int:
        """The entry that brought the current configuration."""
        return self._indices[-1]

    @property
    def previous(self) -> Configuration | None:
        """The one before the current; None where the checkpoint has forgotten it."""
        return self._configurations[-2] if len(self._configurations) > 1 else None

    def append(self, index: int, configuration: Configuration) -> None:
        """The entry at `index` brings `configuration`. Raises ValueError where it does not come last."""
        if index <= self._indices[-1]:
            raise ValueError(f"configuration {index} does not follow {self._indices[-1]}")
        self._indices.append(index)
        self._configurations.append(configuration)

    def truncate(self, last_index: int) -> None:
        """Revert those whose entries come after `last_index`; the checkpoint's stays."""
        keep = max(1, bisect_right(self._indices, last_index))
        del self._indices[keep:], self._configurations[keep:]

    def trim(self, base_index: int) -> None:
        """Forget those that were replaced at or before `base_index`, which a checkpoint covers now."""
        drop = bisect_right(self._indices, base_index) - 1
        if drop > 0:
            del self._indices[:drop], self._configurations[:drop]

    def at(self, index: int) -> Configuration:
        """The configuration in force at `index`; the lowest kept one for an index before it."""
        return self._configurations[max(0, bisect_right(self._indices, index) - 1)]

    def items_between(self, first: int, last: int) -> Sequence[tuple[int, Configuration]]:
        """The configuration entries from `first` to `last`, both included, ascending."""
        if last < self._indices[0] or first > self._indices[-1]:
            return ()
        low, high = bisect_right(self._indices, first - 1), bisect_right(self._indices, last)
        return tuple(zip(self._indices[low:high], self._configurations[low:high], strict=True))
