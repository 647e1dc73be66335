"""The trace: every event of a run, hashed as it happens; the newest lines are kept for a report.

Invariant: an event is (virtual time, node, kind, detail), and nothing in it depends on the machine, the
order of a set, or an object's identity. So equal seeds have equal hashes under any PYTHONHASHSEED.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

KEPT_EVENTS = 400

Event = tuple[int, int, str, object]

LABELS = {
    "ChunkPayload": "Piece",
    "ConfigurationRejected": "ConfigurationRefused",
    "FramesUnavailable": "FramesGone",
    "LockConflict": "Held",
    "RequestError": "Refused",
    "GuardMismatch": "Overtaken",
}
"""The names of classes in traces, where these were renamed: frozen seeds keep their hashes."""


class Trace:
    """Hash and tail of the events. `show` is called with each line as it comes."""

    __slots__ = ("_events", "_hash", "_pending", "_show", "count")

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._pending: list[Event] = []
        self._show = show
        self.count = 0

    def add(self, now_us: int, node: int, kind: str, detail: object) -> None:
        """One event; node 0 is the world itself. `detail` is text, a number, or a tuple of those."""
        self.count += 1
        event = (now_us, node, kind, detail)
        self._pending.append(event)
        if len(self._pending) >= KEPT_EVENTS:
            self._digest()
        if self._show is not None:
            self._show(line(event))

    def _digest(self) -> None:
        # One repr for many events: a third of the cost of one each.
        self._hash.update(repr(self._pending).encode())
        self._events.extend(self._pending)
        self._pending.clear()

    def hexdigest(self) -> str:
        self._digest()
        return self._hash.hexdigest()

    def tail(self, count: int) -> list[str]:
        """The newest lines, oldest first."""
        self._digest()
        return [line(event) for event in list(self._events)[-count:]]


def label(kind: type) -> str:
    """Returns the name of a class in traces."""
    return LABELS.get(kind.__name__, kind.__name__)


def line(event: Event) -> str:
    now_us, node, kind, detail = event
    return f"{now_us / 1e6:12.6f}  {f'node {node}' if node else 'world':8} {kind:12} {detail}"
