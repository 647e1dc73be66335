"""What transactions promise, judged over a whole history (`checker.py` asks).

A transaction *happened* when its commit was acknowledged, or when its commit was asked for, its end is
unknown and a reader of committed records had one of its records. One that was aborted, or whose commit nobody
asked for, did not; neither did one whose end is unknown and of which nobody had anything.

- G1a: a reader of committed records had a record of a transaction that did not happen
- open-read: ... had a record before the transaction's commit was asked for
- torn-transaction: readers of committed records had some of a transaction's acknowledged records and never
  the others, though they had what is behind them (or, after the final reads, at all)
- lost-transaction: the same where they had none of them: a commit was acknowledged, nothing of it is there
- torn-offsets: what is committed for a group is not what the last transaction that happened committed for it:
  positions and output are not one

Pure: no clock, no file.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.torture.history import UNKNOWN_OFFSET, History, Poll, Send, Transaction

NOTHING = -1
"""The offset of a group that has committed nothing."""

Add = Callable[[str, str], None]


class Transactions:
    """Which transactions happened, from what readers of committed records had."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._read: dict[str, tuple[int, str]] = {}
        """Value to when it was first read, and by whom, of readers of committed records."""
        self._ends: dict[str, int] = {}
        """Partition to the highest offset that any of them had."""
        for process in sorted(history.committed_readers):
            for step in history.steps.get(process, ()):
                if isinstance(step, Poll):
                    self._had(process, step)
        self._happened = {name: self._did(each) for name, each in history.transactions.items()}

    def _had(self, process: str, poll: Poll) -> None:
        for part, records in poll.records.items():
            for offset, value in records:
                self._ends[part] = max(self._ends.get(part, -1), offset)
                first = self._read.setdefault(value, (poll.at_ns, process))
                self._read[value] = min(first, (poll.at_ns, process))

    def _did(self, transaction: Transaction) -> bool:
        if transaction.status in ("committed", "aborted"):
            return transaction.status == "committed"
        return transaction.asked_ns > 0 and any(send.value in self._read for send in transaction.sends)

    def never(self, value: str) -> bool:
        """Is this a record that no reader of committed records may have?"""
        send = self._history.sends.get(value)
        return send is not None and send.transaction is not None and not self._happened[send.transaction.name]

    def judge(self, add: Add, final: bool) -> None:
        """Reports every anomaly. `final`: everything was read to the end."""
        for transaction in self._history.transactions.values():
            if self._happened[transaction.name]:
                self._judge_happened(add, transaction, final)
            else:
                self._judge_not_happened(add, transaction)
        if final:
            self._judge_offsets(add)

    def _judge_not_happened(self, add: Add, transaction: Transaction) -> None:
        for send in transaction.sends:
            if send.value in self._read:
                reader = self._read[send.value][1]
                add("G1a", f"{reader} had {send.value} of {transaction.name}, {transaction.status}")

    def _judge_happened(self, add: Add, transaction: Transaction, final: bool) -> None:
        had = [send for send in transaction.sends if send.value in self._read]
        for send in had:
            at_ns, reader = self._read[send.value]
            if at_ns < transaction.asked_ns:
                add("open-read", f"{reader} had {send.value} before {transaction.name} was to be committed")
        missing = [send for send in transaction.sends if send.status == "ok" and self._lacks(send, final)]
        if missing:
            kind = "torn-transaction" if had else "lost-transaction"
            texts = ", ".join(f"{each.value} ({each.partition} offset {each.offset})" for each in missing)
            add(kind, f"{transaction.name}, {transaction.status}: nobody had {texts}")

    def _lacks(self, send: Send, final: bool) -> bool:
        if send.value in self._read:
            return False
        return final or UNKNOWN_OFFSET < send.offset <= self._ends.get(send.partition, -1)

    def _judge_offsets(self, add: Add) -> None:
        for fetched in self._history.fetched:
            begun = self._history.grouped.get(fetched.group, [])[: fetched.after]
            happened = [each for each in begun if self._happened[each.name]]
            wanted = happened[-1].offset if happened else NOTHING
            if fetched.offset != wanted:
                last = happened[-1].name if happened else "none"
                add(
                    "torn-offsets",
                    f"{fetched.process} found {fetched.offset} committed for {fetched.group}, "
                    f"{wanted} is what the last transaction that happened ({last}) committed",
                )
