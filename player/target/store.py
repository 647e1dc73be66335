"""The interface of a target's store: the mark of each log, stored with the changes of the entries.

Owns: the interface, and no code. `sqlite` and `postgres` implement it in one transaction; `file` cannot, and
describes what that means. Another store must follow the rules of `StoredLog`: all safety depends on them.
"""

from __future__ import annotations

from typing import Protocol

from lockstep.player.target.records import Delivered, LogName
from lockstep.player.target.target_position import Mark


class MarkMismatch(Exception):
    """The stored mark is another one, under the same terms: another process changed it. Nothing is
    applied."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem}: another process changed this target's store, or an older copy was put in its place; "
            "each target needs a store of its own (docs/targets.md)"
        )


class StoredLog(Protocol):
    """One log's part of a store. All calls come from the thread that opened it, one after the other.

    What they raise ends the stream, in these words; then it is closed, and reopened for the next stream.
    """

    def load(self) -> Mark | None:
        """The mark as it is stored; None where this log has none yet."""

    def fence(self, mark: Mark) -> int:
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


class TargetStore(Protocol):
    """The store of a target's state."""

    def open(self, name: LogName) -> StoredLog:
        """Called in the thread that will use it."""

    def stop(self) -> None:
        """The target ends: waits for other processes are ended. Called from another thread."""
