"""The status that a node sends to the others, periodically and on each change. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_BUILD_LENGTH: Final = 100
"""Only operators read the text; a longer one of a later version is truncated."""


@dataclass(frozen=True)
class Status:
    """The status of one node."""

    joined: bool = False
    """It has taken part in a cluster: it has, or had, a log."""
    has_log: bool = False
    """Its log of group 0 has entries, or it has not opened it yet and cannot know."""
    cluster_id: str | None = None
    """As recorded; None where it has seen no record yet."""
    registered: tuple[int, ...] = ()
    voters: tuple[int, ...] = ()
    """The nodes that may vote in group 0, where that is recorded."""
    leads: Mapping[int, int] = field(default_factory=dict)
    """Log group to the term it leads in."""
    members: Mapping[int, int] = field(default_factory=dict)
    """Log group to its member id there."""
    applied: int = 0
    """The applied index of group 0."""
    data_groups: int = 0
    """How many log groups for data are recorded; 0 where it has seen no record of them yet."""
    disk_full: bool | None = None
    """Whether its disk is full; None where it does not report it, as older versions."""
    out_of_sync: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The out-of-sync nodes of each log group that it leads; older versions do not report them."""
    build: str | None = None
    """Its version and commit; older versions do not report them."""
    write_failed: bool | None = None
    """Whether it cannot write its log though its disk is not full; None where it does not report it, as older
    versions."""
    incomplete: tuple[int, ...] = ()
    """The log groups with missing records on it, or damaged ones, that are not skipped; older versions do not
    report them."""
    founding: bool | None = None
    """It is a founder whose log is open and has no entry yet; None where it does not report it, as older
    versions."""
    has_unapplied: bool | None = None
    """Its log of group 0 has, or may have, entries that it has not applied; None where it does not report it,
    as older versions."""

    def encode(self) -> bytes:
        """Returns it as JSON."""
        return json.dumps(
            {
                "joined": self.joined,
                "log": self.has_log,
                "cluster": self.cluster_id,
                "nodes": list(self.registered),
                "voters": list(self.voters),
                "leads": {str(group): term for group, term in self.leads.items()},
                "members": {str(group): member for group, member in self.members.items()},
                "applied": self.applied,
                "groups": self.data_groups,
                "full": self.disk_full,
                "behind": {str(group): list(nodes) for group, nodes in self.out_of_sync.items()},
                "build": self.build,
                "write_failed": self.write_failed,
                "incomplete": list(self.incomplete),
                "founding": self.founding,
                "unapplied": self.has_unapplied,
            },
            separators=(",", ":"),
        ).encode()

    @staticmethod
    def decode(body: bytes) -> Status:
        """Raises ValueError."""
        try:
            fields: dict[str, Any] = json.loads(body)
            cluster_id = fields["cluster"]
            if cluster_id is not None and not isinstance(cluster_id, str):
                raise TypeError("a cluster id that is no text")
            flags = [fields.get(each) for each in ("full", "write_failed", "founding", "unapplied")]
            if not all(each is None or isinstance(each, bool) for each in flags):
                raise TypeError("a disk's and a log's state are true, false or unknown")
            full, write_failed, founding, has_unapplied = flags
            build = fields.get("build")
            if build is not None and not isinstance(build, str):
                raise TypeError("a build that is no text")
            return Status(
                bool(fields["joined"]),
                bool(fields["log"]),
                cluster_id,
                tuple(_int31(each) for each in fields["nodes"]),
                tuple(_int31(each) for each in fields["voters"]),
                {_int31(group): _int31(term) for group, term in fields["leads"].items()},
                {_int31(group): _number(member) for group, member in fields["members"].items()},
                _number(fields["applied"]),
                _int31(fields.get("groups", 0)),
                full,
                {
                    _int31(group): tuple(_int31(each) for each in nodes)
                    for group, nodes in fields.get("behind", {}).items()
                },
                None if build is None else build[:MAX_BUILD_LENGTH],
                write_failed,
                tuple(_int31(each) for each in fields.get("incomplete", ())),
                founding,
                has_unapplied,
            )
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a status: {error!r}") from None


def _int31(value: Any) -> int:
    """Checks a number of the wire: a node, a group or a term. Raises ValueError, TypeError, OverflowError."""
    return _number(value, 1 << 31)


def _number(value: Any, end: int = 1 << 63) -> int:
    number = int(value)
    if not 0 <= number < end:
        raise ValueError(f"a number of {number} in a status")
    return number
