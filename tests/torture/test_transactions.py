"""The checker finds every planted anomaly of transactions by its name, and leaves right histories alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import each_case
from tests.torture.checker import Verdict, check
from tests.torture.history import BrokenHistory, History

Event = dict[str, Any]
PARTS = ("t-0", "t-1", "t-2")
GROUP = "g"


class World:
    """A right broker with one transactional producer, a reader of committed records and one of all."""

    def __init__(self, seed: int, count: int = 40) -> None:
        self.rng = random.Random(seed)
        self.now = 0
        self.events: list[Event] = []
        self.logs: dict[str, list[str | None]] = {part: [] for part in PARTS}
        """None: a marker."""
        self.gone: set[str] = set()
        """Values of transactions that did not happen."""
        self.happened: list[str] = []
        self.offset = -1
        self.places = {(reader, part): 0 for reader in ("committed", "all") for part in PARTS}
        self.say("p", "producer", idempotent=True)
        self.say("committed", "consumer", committed=True)
        self.say("all", "consumer", committed=False)
        for reader in ("committed", "all"):
            self.say(reader, "assign", parts=dict.fromkeys(PARTS, 0))
        for number in range(count):
            self.transaction(number)
            if self.rng.random() < 0.3:
                self.poll(self.rng.choice(("committed", "all")), self.rng.choice(PARTS), 7)
            if self.rng.random() < 0.2:
                self.say("p", "fetched", group=GROUP, part="t-0", offset=self.offset)
        self.say("p", "fetched", group=GROUP, part="t-0", offset=self.offset)
        for part in PARTS:
            for reader in ("committed", "all"):
                while self.poll(reader, part, 50):
                    pass

    def say(self, process: str, kind: str, **fields: Any) -> None:
        self.now += self.rng.randrange(1, 5)
        self.events.append({"p": process, "t": self.now, "f": kind, **fields})

    def transaction(self, number: int) -> None:
        """Ends in one of the ways there are; `info` has happened or not."""
        name = f"p#{number}"
        self.say("p", "tx", s="begin", x=name, group=GROUP, part="t-0", offset=number)
        end = self.rng.choices(
            ("committed", "aborted", "left", "info-happened", "info-not", "refused-then-aborted"),
            (10, 3, 1, 1, 1, 1),
        )[0]
        values = []
        for place in range(self.rng.randrange(2, 6)):
            part, value = self.rng.choice(PARTS), f"p.{number}.{place}"
            self.say("p", "send", s="invoke", part=part, key="k", v=value, x=name)
            self.say("p", "send", s="ok", v=value, offset=len(self.logs[part]))
            self.logs[part].append(value)
            values.append((part, value))
        if end == "aborted":
            self.say("p", "tx", s="abort", x=name)
        elif end != "left":
            self.say("p", "tx", s="commit", x=name)
        if end == "refused-then-aborted":
            self.say("p", "tx", s="abort", x=name)
        if end in ("committed", "aborted"):
            self.say("p", "tx", s=end, x=name)
        elif end == "refused-then-aborted":
            self.say("p", "tx", s="aborted", x=name)
        if end in ("committed", "info-happened"):
            self.offset = number
            self.happened.append(name)
        else:
            self.gone.update(value for _, value in values)
        for part in {part for part, _ in values}:
            self.logs[part].append(None)

    def poll(self, reader: str, part: str, count: int) -> int:
        start = self.places[reader, part]
        found = [
            [start + at, value]
            for at, value in enumerate(self.logs[part][start : start + count])
            if value is not None and not (reader == "committed" and value in self.gone)
        ]
        taken = len(self.logs[part][start : start + count])
        self.places[reader, part] = start + taken
        if found:
            self.say(reader, "poll", records={part: found})
        return taken

    def values(self, name: str) -> list[str]:
        return [event["v"] for event in self.events if event.get("x") == name and event["f"] == "send"]

    def unread(self, wanted: Callable[[str], bool]) -> None:
        """No reader of committed records had these."""
        for event in self.events:
            if event["p"] == "committed":
                for found in event.get("records", {}).values():
                    found[:] = [each for each in found if not wanted(each[1])]


def judge(events: list[Event], *, final: bool = True) -> Verdict:
    history = History()
    history.add_lines(json.dumps(event) + "\n" for event in events)
    return check(history, final=final)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(0, 80))
def test_a_right_history_is_left_alone(seed: int, count: int) -> None:
    assert judge(World(seed, count).events).problems == []


def acknowledged(world: World, at_least: int = 2) -> str:
    """A transaction in the middle that was committed and acknowledged, over several partitions."""
    told = {event["x"] for event in world.events if event.get("s") == "committed"}
    parts = {
        name: {event["part"] for event in world.events if event.get("x") == name and "key" in event}
        for name in told
    }
    found = [name for name in world.happened if name in told and len(parts[name]) >= at_least]
    return world.rng.choice(found[:-1])


def plant_aborted_read(world: World) -> None:
    """The commit that readers saw was an abort."""
    name = acknowledged(world)
    for event in world.events:
        if event.get("x") == name and event.get("s") in ("commit", "committed"):
            event["s"] = {"commit": "abort", "committed": "aborted"}[event["s"]]


def plant_read_of_what_was_never_to_be_committed(world: World) -> None:
    name = acknowledged(world)
    world.events = [
        event
        for event in world.events
        if not (event.get("x") == name and event.get("s") in ("commit", "committed"))
    ]


def plant_open_read(world: World) -> None:
    """One poll comes before the commit was asked for."""
    name = acknowledged(world)
    asked = next(e["t"] for e in world.events if e.get("x") == name and e.get("s") == "commit")
    wanted = world.values(name)[0]
    for event in world.events:
        if any(each[1] == wanted for found in event.get("records", {}).values() for each in found):
            event["t"] = min(event["t"], asked - 1)


def plant_torn(world: World) -> None:
    """One of a transaction's records is invisible to readers of committed records."""
    wanted = world.values(acknowledged(world))[0]
    world.unread(lambda value: value == wanted)


def plant_torn_by_partition(world: World) -> None:
    """Aborted in one of its partitions, committed in the others."""
    name = acknowledged(world)
    part = next(event["part"] for event in world.events if event.get("x") == name and "key" in event)
    torn = {
        event["v"]
        for event in world.events
        if event.get("x") == name and event.get("part") == part and "v" in event
    }
    world.unread(lambda value: value in torn)


def plant_lost(world: World) -> None:
    lost = set(world.values(acknowledged(world)))
    world.unread(lambda value: value in lost)


def plant_offsets_without_output(world: World) -> None:
    world.say("p", "fetched", group=GROUP, part="t-0", offset=world.offset + 1000)


def plant_output_without_offsets(world: World) -> None:
    last = world.happened[-1]
    for event in world.events:
        if event["f"] == "fetched" and event["offset"] == int(last.partition("#")[2]):
            event["offset"] = int(world.happened[-2].partition("#")[2])


PLANTS: list[tuple[Callable[[World], None], str]] = [
    (plant_aborted_read, "G1a"),
    (plant_read_of_what_was_never_to_be_committed, "G1a"),
    (plant_open_read, "open-read"),
    (plant_torn, "torn-transaction"),
    (plant_torn_by_partition, "torn-transaction"),
    (plant_lost, "lost-transaction"),
    (plant_offsets_without_output, "torn-offsets"),
    (plant_output_without_offsets, "torn-offsets"),
]


@each_case(("plant", "kind"), PLANTS, ids=lambda each: getattr(each, "__name__", str(each)))
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_a_planted_anomaly_is_found_and_named(plant: Callable[[World], None], kind: str, seed: int) -> None:
    world = World(seed)
    plant(world)
    assert judge(world.events).kinds[kind] >= 1


def test_a_record_that_is_skipped_within_what_happened_is_a_skip_and_another_is_none() -> None:
    def kinds(committed: bool, *values: str) -> dict[str, int]:
        events: list[Event] = [
            {"p": "p", "t": 1, "f": "producer", "idempotent": True},
            {"p": "c", "t": 1, "f": "consumer", "committed": committed},
            {"p": "r", "t": 1, "f": "consumer", "committed": True},
            {"p": "c", "t": 1, "f": "assign", "parts": {"t-0": 0}},
        ]
        for offset, (name, end) in enumerate((("a", "committed"), ("b", "aborted"), ("c", "committed"))):
            asked = {"committed": "commit", "aborted": "abort"}[end]
            send = {"p": "p", "t": 2, "f": "send", "v": name}
            events += [
                {"p": "p", "t": 2, "f": "tx", "s": "begin", "x": name},
                {**send, "s": "invoke", "part": "t-0", "key": "", "x": name},
                {**send, "s": "ok", "offset": offset},
                {"p": "p", "t": 3, "f": "tx", "s": asked, "x": name},
                {"p": "p", "t": 4, "f": "tx", "s": end, "x": name},
            ]
        places = {"a": 0, "b": 1, "c": 2}
        records = [[places[value], value] for value in values]
        events.append({"p": "c", "t": 5, "f": "poll", "records": {"t-0": records}})
        events.append({"p": "r", "t": 5, "f": "poll", "records": {"t-0": [[0, "a"], [2, "c"]]}})
        return dict(judge(events).kinds)

    assert kinds(True, "a", "c") == {}
    assert kinds(True, "c") == {"poll-skip": 1}
    assert kinds(True, "a", "b", "c") == {"G1a": 1}
    assert kinds(False, "a", "b", "c") == {}
    assert kinds(False, "a", "c") == {"int-poll-skip": 1}


def test_what_is_unknown_happened_where_one_record_was_read() -> None:
    base: list[Event] = [
        {"p": "p", "t": 1, "f": "producer", "idempotent": True},
        {"p": "c", "t": 1, "f": "consumer", "committed": True},
        {"p": "p", "t": 2, "f": "tx", "s": "begin", "x": "x", "group": GROUP, "part": "t-0", "offset": 7},
    ]
    for offset, value in enumerate("ab"):
        send = {"p": "p", "t": 3, "f": "send", "v": value}
        base.append({**send, "s": "invoke", "part": "t-0", "key": "", "x": "x"})
        base.append({**send, "s": "ok", "offset": offset})
    asked = {"p": "p", "t": 4, "f": "tx", "s": "commit", "x": "x"}
    one = {"p": "c", "t": 5, "f": "poll", "records": {"t-0": [[0, "a"]]}}
    both = {"p": "c", "t": 5, "f": "poll", "records": {"t-0": [[0, "a"], [1, "b"]]}}

    def fetched(offset: int) -> Event:
        return {"p": "p", "t": 6, "f": "fetched", "group": GROUP, "part": "t-0", "offset": offset}

    def kinds(*more: Event) -> dict[str, int]:
        return dict(judge([*base, *more]).kinds)

    assert kinds(asked, both, fetched(7)) == {}
    assert kinds(asked, fetched(-1)) == {}
    assert kinds(asked, {**asked, "s": "abort"}, both, fetched(7)) == {}
    assert kinds(asked, one, fetched(7)) == {"torn-transaction": 1}
    assert kinds(asked, fetched(7)) == {"torn-offsets": 1}
    assert kinds(asked, both, fetched(-1)) == {"torn-offsets": 1}
    assert dict(judge([*base, asked, one], final=False).kinds) == {}


def test_a_history_the_harness_got_wrong_is_refused() -> None:
    begin = {"p": "p", "t": 0, "f": "tx", "s": "begin", "x": "x"}
    asked, told = {**begin, "s": "commit"}, {**begin, "s": "committed"}
    for wrong in ([begin, begin], [asked], [begin, {**asked, "p": "q"}], [begin, asked, told, told]):
        with pytest.raises(BrokenHistory):
            judge(wrong)
