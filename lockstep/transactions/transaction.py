"""The interface of a transaction: what an application derives its own from."""

from __future__ import annotations

from collections.abc import Awaitable

from lockstep.transactions.draft import Draft
from lockstep.transactions.model import Committed, Refusal


class Transaction:
    """Something to be done, as often as it takes: derive from it and give it `execute`.

    The methods may be plain or `async`. None but `execute` is needed. An exception in an `on_` method
    goes to the application's `on_exception` and changes nothing. They must not wait for another transaction:
    the subscription waits for them.
    """

    def partition(self, partitions: int) -> int:
        """The partition of the transaction, of so many; called before each execution."""
        return 0

    def execute(self, draft: Draft) -> bool | Awaitable[bool | None] | None:
        """Read the application's state, add records and locks to the draft. False: nothing is to be done.

        Executed again after a rejection, when what stood in its way has been applied; it must change nothing.
        """
        raise NotImplementedError(f"{type(self).__name__} has no execute")

    def on_completion(self, is_appended: bool) -> Awaitable[None] | None:
        """It is in the log; or, with False, `execute` did not want it to be. Nothing is tried any more."""

    def on_application(self, committed: Committed) -> Awaitable[None] | None:
        """The application has applied it, or found it applied; called once per partition that it wrote to."""

    def on_refusal(self, refusal: Refusal) -> Awaitable[None] | None:
        """The log rejected it; unless the rejection is final it will be executed again."""

    def on_exception(self, error: BaseException) -> Awaitable[None] | None:
        """`execute` failed, or the log cannot take it; nothing is tried any more."""

    def on_expiration(self, is_known: bool) -> Awaitable[None] | None:
        """Its time is over. True: it is not in the log and will never be. False: that is not known yet."""
