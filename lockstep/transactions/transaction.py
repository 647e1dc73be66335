"""The base class of an application's transactions."""

from __future__ import annotations

from collections.abc import Awaitable

from lockstep.transactions.draft import Draft
from lockstep.transactions.model import Committed, Refusal


class Transaction:
    """A transaction, which is executed until it is appended: subclasses implement `execute`.

    The methods may be plain or `async`. Only `execute` is required. An exception in an `on_` method
    goes to the application's `on_exception` and changes nothing. The methods must not wait for another
    transaction: the subscription waits for them.
    """

    def partition(self, partitions: int) -> int:
        """Returns the transaction's partition, from 0 to `partitions` - 1; called before each execution."""
        return 0

    def execute(self, draft: Draft) -> bool | Awaitable[bool | None] | None:
        """Reads the application's state, adds records and locks to the draft. Returns False to append
        nothing.

        Called again after a rejection, once the conflicting records are applied; it must not change the
        state.
        """
        raise NotImplementedError(f"{type(self).__name__} has no execute")

    def on_completion(self, is_appended: bool) -> Awaitable[None] | None:
        """Called when the transaction is in the log or, with False, when `execute` returned False. No retry
        follows."""

    def on_application(self, committed: Committed) -> Awaitable[None] | None:
        """Called when the application has applied it, or had before; once per partition that it wrote to."""

    def on_refusal(self, refusal: Refusal) -> Awaitable[None] | None:
        """Called when the log rejected it; unless the rejection is final it is executed again."""

    def on_exception(self, error: BaseException) -> Awaitable[None] | None:
        """Called when `execute` failed, or the log cannot take the append; no retry follows."""

    def on_expiration(self, is_known: bool) -> Awaitable[None] | None:
        """Called after its timeout. True: it is not in the log and will never be. False: that is not known
        yet."""
