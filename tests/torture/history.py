"""What real clients said they did: one JSON object per line, put together into one `History`.

Owns: the line format, and the joining of a send's invocation with its end. Every line names its process `p`
(one client instance: a new client is a new process), its time `t` (nanoseconds of the machine's monotonic
clock, which all processes share) and what it does, `f`:

    producer  idempotent                     first line of a producer
    consumer  committed                      first line of a consumer: does it read committed records only?
    send      s=invoke  part key v [x]       part is "topic-partition"; v is unique in the whole run
    send      s=ok      v offset             offset -1 when the client did not say
    send      s=fail    v error              certainly not written
    send      s=info    v error              nobody knows
    poll      records {part: [[offset, v]]}  as returned by one poll
    assign, seek  parts {part: offset|null}  null: wherever the group's commit says
    revoke    parts {part: null}
    tx        s=begin   x [group part offset]  unique in the whole run; what it commits for a group
    tx        s=commit|abort  x              asked for
    tx        s=committed|aborted  x         told; without this a commit that was asked for is unknown
    fetched   group part offset              committed for the group, -1 nothing; nothing is under way
    create    s=invoke|ok|info  topic        and, at the very end, `topics names=[...]`
    note      text                           for a reader; not judged

Invariant: a process's lines are in the order in which it did things. Pure: no clock, no file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

UNKNOWN_OFFSET = -1


class BrokenHistory(ValueError):
    """The history itself is wrong, so nothing could be judged by it: the harness has a bug."""


class Send:
    """One record on its way; `status` stays "info" until its end is heard of."""

    __slots__ = (
        "done_ns",
        "idempotent",
        "invoked_ns",
        "key",
        "offset",
        "partition",
        "process",
        "status",
        "transaction",
        "value",
    )

    def __init__(
        self, process: str, partition: str, key: str, value: str, invoked_ns: int, idempotent: bool
    ) -> None:
        self.transaction: Transaction | None = None
        self.process = process
        self.partition = partition
        self.key = key
        self.value = value
        self.invoked_ns = invoked_ns
        self.idempotent = idempotent
        self.status = "info"
        self.done_ns = 0
        self.offset = UNKNOWN_OFFSET


class Transaction:
    """What its client knows: "begun", asked for "commit" or "abort", told "committed" or "aborted"."""

    __slots__ = ("asked_ns", "group", "name", "offset", "part", "process", "sends", "status")

    def __init__(self, name: str, process: str, group: str, part: str, offset: int) -> None:
        self.name = name
        self.process = process
        self.group = group
        self.part = part
        self.offset = offset
        self.status = "begun"
        self.asked_ns = 0
        """When its commit was first asked for; 0 never."""
        self.sends: list[Send] = []


class Fetched:
    """What was committed for a group when its transactional producer had nothing under way."""

    __slots__ = ("after", "group", "offset", "part", "process")

    def __init__(self, process: str, group: str, part: str, offset: int, after: int) -> None:
        self.process = process
        self.group = group
        self.part = part
        self.offset = offset
        self.after = after
        """How many of the group's transactions had begun."""


class Poll:
    """What one poll returned: (offset, value) pairs of each partition."""

    __slots__ = ("at_ns", "process", "records")

    def __init__(self, process: str, at_ns: int, records: Mapping[str, list[tuple[int, str]]]) -> None:
        self.process = process
        self.at_ns = at_ns
        self.records = records


class Move:
    """A consumer's place changed without a poll: `parts` maps partitions to the next offset, None unknown."""

    __slots__ = ("kind", "parts", "process")

    def __init__(self, process: str, kind: str, parts: Mapping[str, int | None]) -> None:
        self.process = process
        self.kind = kind
        self.parts = parts


class History:
    """Everything one run's clients said."""

    __slots__ = (
        "committed_readers",
        "created",
        "cut_lines",
        "fetched",
        "grouped",
        "idempotent",
        "listed",
        "notes",
        "sends",
        "steps",
        "transactions",
    )

    def __init__(self) -> None:
        self.sends: dict[str, Send] = {}
        """By value; in the order of each process's invocations."""
        self.steps: dict[str, list[Poll | Move]] = {}
        """By consumer process, in its order."""
        self.idempotent: dict[str, bool] = {}
        self.committed_readers: set[str] = set()
        """Consumer processes that were asked for committed records only."""
        self.transactions: dict[str, Transaction] = {}
        """By name; in the order of each process's beginnings."""
        self.grouped: dict[str, list[Transaction]] = {}
        """By the group for which they commit; one producer at a time does, so they are in order."""
        self.fetched: list[Fetched] = []
        self.created: dict[str, str] = {}
        """Topic to the status of its creation."""
        self.listed: set[str] | None = None
        """The topics there at the end; None when nobody asked."""
        self.cut_lines = 0
        self.notes: list[str] = []
        """What clients ended of, for a reader."""

    def add_lines(self, lines: Iterable[str]) -> None:
        """One process's file; a line cut off by the process's death is counted and left out."""
        for line in lines:
            if not line.endswith("\n"):
                self.cut_lines += 1
                continue
            try:
                event = json.loads(line)
            except ValueError as error:
                raise BrokenHistory(f"not a line of JSON: {line[:200]!r}") from error
            self.add(event)

    def add(self, event: Mapping[str, Any]) -> None:
        """One event. BrokenHistory for what no right harness writes."""
        kind, process = event["f"], event["p"]
        if kind == "send":
            self._add_send(event)
        elif kind == "poll":
            records = {
                part: [(offset, value) for offset, value in found] for part, found in event["records"].items()
            }
            self.steps.setdefault(process, []).append(Poll(process, event["t"], records))
        elif kind in ("assign", "revoke", "seek"):
            self.steps.setdefault(process, []).append(Move(process, kind, event["parts"]))
        elif kind == "producer":
            self.idempotent[process] = event["idempotent"]
        elif kind == "consumer":
            if event["committed"]:
                self.committed_readers.add(process)
        elif kind == "tx":
            self._add_transaction(event)
        elif kind == "fetched":
            group, part, offset = event["group"], event["part"], event["offset"]
            after = len(self.grouped.get(group, ()))
            self.fetched.append(Fetched(process, group, part, offset, after))
        elif kind == "create":
            self._add_create(event)
        elif kind == "topics":
            self.listed = set(event["names"])
        elif kind == "note":
            self.notes.append(f"{process}: {event['text']}")
        else:
            raise BrokenHistory(f"unknown kind of event {kind!r}")

    def _add_send(self, event: Mapping[str, Any]) -> None:
        value, process = event["v"], event["p"]
        if event["s"] == "invoke":
            if value in self.sends:
                raise BrokenHistory(f"{value} is sent twice by the harness itself")
            idempotent = self.idempotent[process]
            begun = Send(process, event["part"], event["key"], value, event["t"], idempotent)
            self.sends[value] = begun
            if "x" in event:
                begun.transaction = self.transactions[event["x"]]
                begun.transaction.sends.append(begun)
            return
        send = self.sends.get(value)
        if send is None or send.process != process:
            raise BrokenHistory(f"the end of {value}, which {process} never began to send")
        if send.done_ns:
            raise BrokenHistory(f"{value} ended twice")
        send.status = event["s"]
        send.done_ns = event["t"]
        send.offset = event.get("offset", UNKNOWN_OFFSET)

    def _add_transaction(self, event: Mapping[str, Any]) -> None:
        name, process = event["x"], event["p"]
        if event["s"] == "begin":
            if name in self.transactions:
                raise BrokenHistory(f"transaction {name} begins twice")
            group = event.get("group", "")
            begun = Transaction(name, process, group, event.get("part", ""), event.get("offset", -1))
            self.transactions[name] = begun
            if group:
                self.grouped.setdefault(group, []).append(begun)
            return
        transaction = self.transactions.get(name)
        if transaction is None or transaction.process != process:
            raise BrokenHistory(f"the end of transaction {name}, which {process} never began")
        if transaction.status in ("committed", "aborted"):
            raise BrokenHistory(f"transaction {name} ended twice")
        transaction.status = event["s"]
        if event["s"] == "commit" and not transaction.asked_ns:
            transaction.asked_ns = event["t"]

    def _add_create(self, event: Mapping[str, Any]) -> None:
        if event["s"] == "ok" or event["topic"] not in self.created:
            self.created[event["topic"]] = event["s"]
