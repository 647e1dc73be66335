"""What a target needs of whatever keeps its state: the mark of each log, stored with what the entries change.

Owns: the seam, and no code. `sqlite` and `postgres` keep to it in one transaction; `file` cannot, and says
what that means. Whoever writes another one keeps to the words of `StoredLog`: all safety rests on them.
"""

from __future__ import annotations

from typing import Protocol

from player.target.marks import Mark
from player.target.records import Delivered, LogName


class WrongMark(Exception):
    """The mark is not where it was left, under the same terms: somebody changed it. Nothing is applied."""


class StoredLog(Protocol):
    """One log's part of a store. All calls come from the thread that opened it, one after the other.

    What they raise ends the stream, in these words; then it is closed, and opened anew for the next stream.
    """

    def load(self) -> Mark | None:
        """The mark as it is stored; None where this log has none yet."""

    def greet(self, mark: Mark) -> int:
        """Persist the terms of `mark`, and all of it where there is none yet; returns the stored position.

        When it returns, it is durable, and no older transaction, of whatever process, can be committed any
        more. Raises StaleTerms with the stored mark where its terms are these or higher.
        """

    def store(self, delivered: Delivered, mark: Mark) -> None:
        """Apply, and store `mark`, in one transaction; durable when it returns. Without records, only store.

        Raises StaleTerms where the stored terms are not those of `mark`, and what the application raises:
        nothing is changed then.
        """

    def close(self) -> None: ...


class Store(Protocol):
    """Where a target keeps what it is sent."""

    def open(self, name: LogName) -> StoredLog:
        """Called in the thread that will use it."""

    def stop(self) -> None:
        """The target ends, for good: what waits for somebody else gives up. Called from another thread."""
