"""What the smoke test calls sound: the judgement over one topic's records and its clients' reports. Pure.

Owns: the checksum that every reader keeps, the form of a transaction's value, and `judge`, which asks:

- did every reader see the same records, up to the same ends;
- is every transaction that was reported appended there exactly once, whole, where it was said to be, and none
  that was reported not to be there;
- is there one order of all transactions, which is each partition's own, in which every condition held (plain
  model: the offset of each lock's last raise) and everything that a transaction says it saw was so.

Partitions have no order among each other in what clients can read. It is made up again from what binds them:
transactions over several partitions, and read locks elsewhere, which stand after the mark they were
read at and before the next raise. Where those contradict each other there is no such order.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

APPENDED, NOT_APPLIED = "appended", "not applied"
NOTHING, REFUSED, NOT_APPENDED, EXPIRED = "nothing to do", "refused for good", "not appended", "expired"
UNKNOWN = "unknown"
THERE: Final = frozenset({APPENDED, NOT_APPLIED})
NOT_THERE: Final = frozenset({NOTHING, REFUSED, NOT_APPENDED, EXPIRED})


class Checksum:
    """Over one partition's records, in order; equal for equal histories."""

    def __init__(self) -> None:
        self.records = 0
        self._digest = blake2b(digest_size=16)

    def add(self, offset: int, key: bytes | None, value: bytes | None, request: bytes | None) -> None:
        self.records += 1
        self._digest.update(repr((offset, key, value, request)).encode())

    def __str__(self) -> str:
        return self._digest.hexdigest()


class Value(NamedTuple):
    """What a transaction's records say, the same in each of them."""

    name: str
    """CLIENT/NUMBER, which it keeps however often it is executed."""
    partitions: tuple[int, ...]
    """All that it writes to."""
    saw: tuple[tuple[int, str, int], ...]
    """(partition, key, how many records had that key), as far as locks cover it."""

    def encode(self, padding: str = "") -> bytes:
        return json.dumps([*self, padding], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Value:
        name, partitions, saw, _ = json.loads(value)
        return cls(name, tuple(partitions), tuple((each[0], each[1], each[2]) for each in saw))


class Stored(NamedTuple):
    """A record as another client library read it."""

    offset: int
    key: bytes | None
    value: bytes
    headers: Mapping[str, bytes]


class Outcome(NamedTuple):
    """What a client was told of one transaction."""

    name: str
    became: str
    offsets: Mapping[int, int]
    """Partition -> offset of the last record, where it is there."""
    told: int = 0
    """How many partitions' feeds said that they applied it."""


class Report(NamedTuple):
    """One reader's: a client process, or the other library (which has no outcomes)."""

    reader: str
    ends: Mapping[int, int]
    checksums: Mapping[int, str]
    outcomes: Sequence[Outcome] = ()


class Lock(NamedTuple):
    """A lock's name, in its partition."""

    partition: int
    name: bytes


class Entry:
    """What one partition has of a transaction."""

    def __init__(self, topic: str, partition: int, records: Sequence[Stored]) -> None:
        headers = records[0].headers
        self.partition = partition
        self.request = _request(records[0])
        self.first_offset, self.offset = records[0].offset, records[-1].offset
        self.keys = [each.key for each in records]
        self.value = Value.decode(records[0].value)
        self.is_whole = _is_whole(records)
        self.expected_offset = _number(headers, "lockstep-expected-offset")
        write, read, append = (_locks(headers, kind, partition) for kind in ("write", "read", "append"))
        self.raises = [*write, *append]
        self.conditions: list[tuple[Lock, int]] = []
        """Locks, and the mark above which none may be raised. -2 where there is none: it is broken then."""
        for lock in [*write, *read]:
            self.conditions.append((lock, _number(headers, "lockstep-hwm", -2)))
        self.elsewhere: list[tuple[Lock, int]] = []
        for header in headers:
            if header.startswith("lockstep-read-lock@"):
                where = header.partition("@")[2]
                other = int(where.removeprefix(f"{topic}-"))
                hwm = _number(headers, f"lockstep-hwm@{where}", -2)
                self.elsewhere += [(lock, hwm) for lock in _locks(headers, "read", other, f"@{where}")]

    def __str__(self) -> str:
        return f"{self.value.name} at {self.partition}/{self.offset}"


def _is_whole(records: Sequence[Stored]) -> bool:
    parts = [each.headers.get("lockstep-part") for each in records]
    count = len(records)
    wanted = [b"%d/%d" % (number, count) for number in range(1, count + 1)] if count > 1 else [None]
    first = records[0]
    return parts == wanted and all(
        (each.offset, each.value, _request(each)) == (first.offset + place, first.value, _request(first))
        for place, each in enumerate(records)
    )


def _request(record: Stored) -> bytes:
    return record.headers.get("lockstep-request", b"")


def _number(headers: Mapping[str, bytes], name: str, default: int = -1) -> int:
    return int(headers[name]) if name in headers else default


def _locks(headers: Mapping[str, bytes], kind: str, partition: int, where: str = "") -> list[Lock]:
    names = headers.get(f"lockstep-{kind}-lock{where}")
    return [] if names is None else [Lock(partition, each) for each in names.split(b"\n")]


def entries_of(topic: str, partition: int, records: Iterable[Stored]) -> Iterator[Entry]:
    """A partition's transactions; records that follow each other and name the same request are one."""
    gathered: list[Stored] = []
    for record in records:
        is_first = record.headers.get("lockstep-part", b"1/").startswith(b"1/")
        if gathered and (is_first or _request(record) != _request(gathered[0])):
            yield Entry(topic, partition, gathered)
            gathered = []
        gathered.append(record)
    if gathered:
        yield Entry(topic, partition, gathered)


Together = Sequence[Entry]
"""A transaction: one entry per partition."""


def judge(
    topic: str, records: Mapping[int, Sequence[Stored]], reports: Sequence[Report]
) -> tuple[list[str], Counter[str]]:
    """What is not as it must be, and what was counted."""
    problems = list(unequal(reports))
    log = {number: list(entries_of(topic, number, found)) for number, found in records.items()}
    requests: dict[bytes, list[Entry]] = {}
    for entry in (each for entries in log.values() for each in entries):
        requests.setdefault(entry.request, []).append(entry)
    torn = list(broken(requests))
    problems += torn
    outcomes = [each for report in reports for each in report.outcomes]
    problems += misreported(requests.values(), outcomes)
    model = Model()
    if not torn:  # an order of what is torn would say nothing
        problems += model.replayed(log, requests)
    counts = Counter(each.became for each in outcomes)
    counts += Counter({"transactions in the log": len(requests), "conditions held": model.conditions})
    counts["records"] = sum(map(len, records.values()))
    counts["fences seen"] = fences(requests)
    counts["over several partitions"] = sum(len(each) > 1 for each in requests.values())
    return problems, counts


def fences(requests: Iterable[bytes]) -> int:
    """How many there were at least: a client's generation rises with each."""
    highest: dict[bytes, int] = {}
    for request in requests:
        client, _, rest = request.partition(b"/")
        generation = rest.partition(b"/")[0]
        highest[client] = max(highest.get(client, 0), int(generation or 0))
    return sum(highest.values())


def unequal(reports: Sequence[Report]) -> Iterator[str]:
    """Where readers differ from the first one."""
    first = reports[0]
    for report in reports[1:]:
        for number in sorted(first.ends.keys() | report.ends.keys()):
            ends = first.ends.get(number), report.ends.get(number)
            if ends[0] != ends[1]:
                yield f"partition {number}: {first.reader} ends at {ends[0]}, {report.reader} at {ends[1]}"
            elif first.checksums.get(number) != report.checksums.get(number):
                yield f"partition {number}: {report.reader} has another checksum than {first.reader}"


def broken(requests: Mapping[bytes, Together]) -> Iterator[str]:
    """Transactions that are not there as a whole, or more than once under one request."""
    for request, entries in requests.items():
        partitions = [entry.partition for entry in entries]
        if len(set(partitions)) < len(partitions):
            yield f"request {request.decode()} stands twice: {', '.join(map(str, entries))}"
        elif sorted(partitions) != sorted(entries[0].value.partitions):
            yield f"{entries[0]} is to be in {entries[0].value.partitions} and is in {partitions}"
        elif not all(entry.is_whole and entry.value == entries[0].value for entry in entries):
            yield f"{entries[0]} is not whole, or not the same everywhere"


def misreported(found: Iterable[Together], outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Where the log and what clients were told differ."""
    places: dict[str, list[Together]] = defaultdict(list)
    for entries in found:
        places[entries[0].value.name].append(entries)
    for outcome in outcomes:
        there = places.pop(outcome.name, [])
        if len(there) > 1:
            yield f"transaction {outcome.name} is there {len(there)} times, first {there[0][0]}"
        elif there and outcome.became in NOT_THERE:
            yield f"{there[0][0]} was reported {outcome.became}"
        elif not there and outcome.became in THERE:
            yield f"transaction {outcome.name} was reported {outcome.became} and is lost"
        elif outcome.became in THERE:
            offsets = {entry.partition: entry.offset for entry in there[0]}
            if offsets != dict(outcome.offsets):
                yield f"{there[0][0]} is at {offsets}, reported at {dict(outcome.offsets)}"
            if outcome.became == APPENDED and outcome.told != len(offsets):
                yield f"{there[0][0]}: {outcome.told} feeds told of it, not {len(offsets)}"
    for name, there in places.items():
        yield f"transaction {name} is nobody's: {there[0][0]}"


class Model:
    """All transactions one after the other: each lock's last raise, and how many records each key has."""

    def __init__(self) -> None:
        self.conditions = 0
        self._marks: dict[Lock, int] = {}
        self._counts: Counter[tuple[int, bytes | None]] = Counter()

    def replayed(
        self, log: Mapping[int, Sequence[Entry]], requests: Mapping[bytes, Together]
    ) -> Iterator[str]:
        """Take all there are, in an order that fits; says what did not hold."""
        line = Line(log, requests)
        for entries in line.ordered():
            yield from self.take(entries)
        heads = line.heads()
        if heads:
            yield f"no order fits from here on: {', '.join(map(str, heads))}"

    def take(self, entries: Together) -> Iterator[str]:
        for entry in entries:
            for lock, hwm in [*entry.conditions, *entry.elsewhere]:
                self.conditions += 1
                mark = self._marks.get(lock, -1)
                if mark > hwm:
                    name = lock.name.decode()
                    yield f"{entry}: lock {name} of {lock.partition} was raised at {mark}, it had read {hwm}"
            if entry.expected_offset not in (-1, entry.first_offset):
                yield f"{entry} was to be at {entry.expected_offset}"
        for partition, key, count in entries[0].value.saw:
            there = self._counts[partition, key.encode()]
            if there != count:
                yield f"{entries[0]}: it saw {count} records of {key} in {partition}, there were {there}"
        for entry in entries:
            self._counts.update((entry.partition, key) for key in entry.keys)
            self._marks.update(dict.fromkeys(entry.raises, entry.offset))


class Line:
    """The next transaction of each partition, and which of them may go first."""

    def __init__(self, log: Mapping[int, Sequence[Entry]], requests: Mapping[bytes, Together]) -> None:
        self._log = log
        self._requests = requests
        self._next = dict.fromkeys(log, 0)
        self._done: set[bytes] = set()
        self._before: dict[bytes, list[bytes]] = defaultdict(list)
        """Requests that raise a lock -> those that had read it in another partition before that."""
        self._bind()

    def _bind(self) -> None:
        raises: dict[Lock, list[Entry]] = defaultdict(list)
        for entry in (each for entries in self._log.values() for each in entries):
            for lock in dict.fromkeys(entry.raises):
                raises[lock].append(entry)
        for entry in (each for entries in self._log.values() for each in entries):
            for lock, hwm in entry.elsewhere:
                later = raises.get(lock, [])
                place = bisect_right(later, hwm, key=_offset)
                if place < len(later):
                    self._before[later[place].request].append(entry.request)

    def ordered(self) -> Iterator[Together]:
        """Each transaction once; ends early where none can go."""
        moved = True
        while moved:
            moved = False
            for partition in self._log:
                while (head := self._head(partition)) is not None and self._may_go(head.request):
                    entries = self._requests[head.request]
                    for entry in entries:
                        self._next[entry.partition] += 1
                    self._done.add(head.request)
                    moved = True
                    yield entries

    def heads(self) -> list[Entry]:
        """The next of each partition that is not at its end."""
        return [head for partition in self._log if (head := self._head(partition)) is not None]

    def _head(self, partition: int) -> Entry | None:
        entries, place = self._log[partition], self._next[partition]
        return entries[place] if place < len(entries) else None

    def _may_go(self, request: bytes) -> bool:
        for entry in self._requests[request]:
            if self._head(entry.partition) is not entry:
                return False
            for lock, hwm in entry.elsewhere:
                head = self._head(lock.partition)
                if head is not None and head.offset <= hwm:
                    return False
        return all(each in self._done for each in self._before.get(request, ()))


def _offset(entry: Entry) -> int:
    return entry.offset


def report_of(document: Mapping[str, Any]) -> Report:
    """From what a client process wrote."""
    return Report(
        document["reader"],
        {int(number): end for number, end in document["ends"].items()},
        {int(number): text for number, text in document["checksums"].items()},
        [
            Outcome(name, became, {int(number): offset for number, offset in offsets.items()}, told)
            for name, became, offsets, told in document["outcomes"]
        ],
    )
