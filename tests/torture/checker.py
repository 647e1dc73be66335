"""Is this history one that Kafka promises? Every anomaly by its name, in passes linear in the history.

Written from the description of Jepsen's Kafka checker. A partition's *version order* is its known offsets in
ascending order, known from acknowledgements and from all polls; an *index* is a place in it, so that offsets
which hold no record do not count.

- inconsistent-offsets: one offset of a partition holds two values
- duplicate: an idempotent producer's value has two offsets (other producers' repeats are counted only)
- misplaced: a value in another partition than it was sent to
- G1a: a value whose send certainly failed was read
- phantom: a value nobody sent was read
- lost-write: acknowledged, never read, though something behind it was
- unseen: acknowledged, never read, and nothing behind it was either; after the final reads that is a loss
- poll-skip, nonmonotonic-poll: between two polls of a consumer an index is left out, or not a later one.
  Both are judged per consumer and partition from its last poll or its last assign or seek with a known place;
  a rebalance without one (null), or a revocation, starts afresh
- int-poll-skip, int-nonmonotonic-poll: the same within one poll
- nonmonotonic-send: an idempotent producer's records are not in its order of sending
- stale-offset: a record has an offset at or below one that was acknowledged or read before it was sent
- what transactions add is in `transactions.py`: a consumer that was asked for committed records may, and
  must, leave out those of transactions that did not happen
- lost-topic: a topic's creation was acknowledged and it is not listed at the end

Pure: no clock, no file. Does not judge liveness (how long nothing was acknowledged): `gaps.py`.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator

from tests.torture.history import UNKNOWN_OFFSET, History, Move, Poll, Send
from tests.torture.transactions import Transactions

KEPT_PROBLEMS = 50
"""Texts kept per verdict; the counts are always whole."""


class Verdict:
    """Counts and anomalies of one check. Sound when `kinds` is empty."""

    __slots__ = (
        "acknowledged",
        "failed",
        "kinds",
        "polled_records",
        "polls",
        "problems",
        "repeats",
        "sent",
        "transactions",
        "unknown",
        "unknown_read",
    )

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged = 0
        self.failed = 0
        self.unknown = 0
        self.unknown_read = 0
        self.polls = 0
        self.polled_records = 0
        self.repeats = 0
        self.transactions: Counter[str] = Counter()
        """By what their clients were told, or asked for last."""
        self.kinds: Counter[str] = Counter()
        self.problems: list[str] = []

    @property
    def sound(self) -> bool:
        return not self.kinds

    def add(self, kind: str, text: str) -> None:
        """Counts an anomaly; keeps its text while there are few."""
        self.kinds[kind] += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(f"{kind}: {text}")


class _Partition:
    """What is known of one partition's log."""

    __slots__ = ("at", "indexes", "offsets")

    def __init__(self) -> None:
        self.at: dict[int, str] = {}
        """Offset to the value first seen there."""
        self.offsets: list[int] = []
        self.indexes: dict[int, int] = {}

    def order(self) -> None:
        self.offsets = sorted(self.at)
        self.indexes = {offset: index for index, offset in enumerate(self.offsets)}


class _Check:
    def __init__(self, history: History) -> None:
        self.history = history
        self.verdict = Verdict()
        self.partitions: dict[str, _Partition] = {}
        self.places: dict[str, set[tuple[str, int]]] = {}
        """Value to where it was seen: acknowledged or polled."""
        self.read: set[str] = set()
        self.transactions = Transactions(history)

    def run(self, final: bool) -> Verdict:
        self._place_everything()
        self._judge_values()
        self._judge_losses(final)
        self.verdict.transactions.update(each.status for each in self.history.transactions.values())
        self.transactions.judge(self.verdict.add, final)
        for process in sorted(self.history.steps):
            self._judge_consumer(process)
        self._judge_send_order()
        self._judge_real_time()
        self._judge_topics()
        return self.verdict

    def _polls(self) -> Iterator[Poll]:
        for steps in self.history.steps.values():
            for step in steps:
                if isinstance(step, Poll):
                    yield step

    def _place_everything(self) -> None:
        for send in self.history.sends.values():
            self._count(send)
            if send.status == "ok" and send.offset != UNKNOWN_OFFSET:
                self._place(send.partition, send.offset, send.value, f"acknowledged to {send.process}")
        for poll in self._polls():
            self.verdict.polls += 1
            for part, records in poll.records.items():
                self.verdict.polled_records += len(records)
                for offset, value in records:
                    self.read.add(value)
                    self._place(part, offset, value, f"polled by {poll.process}")
        for partition in self.partitions.values():
            partition.order()

    def _count(self, send: Send) -> None:
        verdict = self.verdict
        verdict.sent += 1
        verdict.acknowledged += send.status == "ok"
        verdict.failed += send.status == "fail"
        verdict.unknown += send.status == "info"

    def _place(self, part: str, offset: int, value: str, how: str) -> None:
        partition = self.partitions.get(part)
        if partition is None:
            partition = self.partitions[part] = _Partition()
        known = partition.at.setdefault(offset, value)
        if known != value:
            self.verdict.add("inconsistent-offsets", f"{part} offset {offset}: {known}, and {value} {how}")
        self.places.setdefault(value, set()).add((part, offset))

    def _judge_values(self) -> None:
        for value, places in self.places.items():
            send = self.history.sends.get(value)
            if send is None:
                self.verdict.add("phantom", f"nobody sent {value}, found at {sorted(places)}")
                continue
            if len(places) > 1:
                if send.idempotent:
                    self.verdict.add("duplicate", f"{value} is at {sorted(places)}")
                else:
                    self.verdict.repeats += len(places) - 1
            if any(part != send.partition for part, _ in places):
                self.verdict.add("misplaced", f"{value}, sent to {send.partition}, is at {sorted(places)}")
            if value in self.read:
                self.verdict.unknown_read += send.status == "info"
                if send.status == "fail":
                    self.verdict.add(
                        "G1a", f"the send of {value} failed, and it was read at {sorted(places)}"
                    )

    def _judge_losses(self, final: bool) -> None:
        bounds: dict[str, int] = {}
        for value in self.read:
            for part, offset in self.places[value]:
                # the first index of each read value, the highest of those over all values
                first = min(place for each, place in self.places[value] if each == part)
                if offset == first:
                    bounds[part] = max(bounds.get(part, -1), offset)
        for send in self.history.sends.values():
            if send.status != "ok" or send.value in self.read or send.transaction is not None:
                continue
            text = f"{send.value} of {send.process}, acknowledged at {send.partition} offset {send.offset}"
            if UNKNOWN_OFFSET < send.offset <= bounds.get(send.partition, -1):
                self.verdict.add("lost-write", f"{text}, was never read; later ones were")
            elif final:
                self.verdict.add("unseen", f"{text}, was never read")

    def _judge_consumer(self, process: str) -> None:
        next_index: dict[str, int] = {}
        committed_only = process in self.history.committed_readers
        for step in self.history.steps[process]:
            if isinstance(step, Move):
                self._move(step, next_index)
                continue
            for part, records in step.records.items():
                for number, (offset, value) in enumerate(records):
                    index = self.partitions[part].indexes[offset]
                    expected = next_index.get(part)
                    if committed_only and expected is not None:
                        expected = self._without_uncommitted(part, expected, index)
                    if expected is not None and index != expected:
                        kind = "poll-skip" if index > expected else "nonmonotonic-poll"
                        self.verdict.add(
                            f"int-{kind}" if number else kind,
                            f"{process} got {part} offset {offset} ({value}), "
                            f"{self._offset_at(part, expected)} was next",
                        )
                    next_index[part] = index + 1

    def _without_uncommitted(self, part: str, expected: int, index: int) -> int:
        """The next index after those that hold nothing for a reader of committed records."""
        partition = self.partitions[part]
        while expected < index and self.transactions.never(partition.at[partition.offsets[expected]]):
            expected += 1
        return expected

    def _move(self, move: Move, next_index: dict[str, int]) -> None:
        for part, offset in move.parts.items():
            if offset is None or move.kind == "revoke":
                next_index.pop(part, None)
            else:
                offsets = self.partitions[part].offsets if part in self.partitions else []
                next_index[part] = bisect.bisect_left(offsets, offset)

    def _offset_at(self, part: str, index: int) -> str:
        offsets = self.partitions[part].offsets
        return f"offset {offsets[index]}" if index < len(offsets) else "the end"

    def _lowest(self, send: Send) -> int | None:
        places = self.places.get(send.value, ())
        return min((offset for part, offset in places if part == send.partition), default=None)

    def _judge_send_order(self) -> None:
        newest: dict[tuple[str, str], tuple[int, str]] = {}
        for send in self.history.sends.values():
            offset = self._lowest(send)
            if not send.idempotent or offset is None:
                continue
            before = newest.get((send.process, send.partition), (-1, ""))
            if offset < before[0]:
                self.verdict.add(
                    "nonmonotonic-send",
                    f"{send.process} sent {send.value} (key {send.key}) after {before[1]}, "
                    f"but it is at {send.partition} offset {offset}, before {before[0]}",
                )
            newest[send.process, send.partition] = max(before, (offset, send.value))

    def _judge_real_time(self) -> None:
        """What was acknowledged or read before a record was sent lies before it in the log."""
        # (time, 0 for sent or 1 for seen, partition, offset, value); at equal times "sent" comes first
        events: list[tuple[int, int, str, int, str]] = []
        for send in self.history.sends.values():
            lowest = self._lowest(send)
            if lowest is not None:
                events.append((send.invoked_ns, 0, send.partition, lowest, send.value))
            if send.status == "ok" and send.offset != UNKNOWN_OFFSET:
                events.append((send.done_ns, 1, send.partition, send.offset, send.value))
        for poll in self._polls():
            for part, records in poll.records.items():
                if records:
                    offset, value = max(records)
                    events.append((poll.at_ns, 1, part, offset, value))
        events.sort()
        seen: dict[str, tuple[int, str]] = {}
        for _, is_seen, part, offset, value in events:
            highest = seen.get(part, (-1, ""))
            if is_seen:
                seen[part] = max(highest, (offset, value))
            elif offset <= highest[0]:
                self.verdict.add(
                    "stale-offset",
                    f"{value} is at {part} offset {offset}, "
                    f"but {highest[1]} at {highest[0]} was there before it was sent",
                )

    def _judge_topics(self) -> None:
        if self.history.listed is None:
            return
        for topic, status in sorted(self.history.created.items()):
            if status == "ok" and topic not in self.history.listed:
                self.verdict.add("lost-topic", f"{topic} was created, and is not listed at the end")


def check(history: History, *, final: bool = True) -> Verdict:
    """Judges a whole history; `final` says that everything was read to the end, so that unseen is a loss."""
    return _Check(history).run(final)
