"""The checker finds every planted anomaly by its name, and leaves clean histories alone."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import each_case
from tests.torture.checker import Verdict, check
from tests.torture.history import BrokenHistory, History

Event = dict[str, Any]
PARTS = ("t-0", "t-1")


class CleanWorld:
    """A right broker with its clients: draws a history in which nothing is wrong."""

    def __init__(self, rng: random.Random, sends: int) -> None:
        self.rng = rng
        self.now = 0
        self.events: list[Event] = []
        self.logs: dict[str, list[str]] = {part: [] for part in PARTS}
        self.places: dict[tuple[str, str], int] = {}
        self.say("p1", "producer", idempotent=True)
        self.say("p2", "producer", idempotent=False)
        for process in ("c1", "c2"):
            self.seek(process, "assign", {part: 0 for part in PARTS})
        for number in range(sends):
            self.send(number)
            if rng.random() < 0.3:
                self.poll(rng.choice(("c1", "c2")), rng.choice(PARTS), rng.randrange(1, 6))
            if rng.random() < 0.05:
                self.rebalance(rng.choice(PARTS))
        for part in PARTS:  # the final reads
            for process in ("c1", "c2"):
                while self.poll(process, part, 50):
                    pass

    def say(self, process: str, kind: str, **fields: Any) -> None:
        self.now += self.rng.randrange(1, 5)
        self.events.append({"p": process, "t": self.now, "f": kind, **fields})

    def send(self, number: int) -> None:
        process, part = self.rng.choice((("p1", "t-0"), ("p1", "t-1"), ("p2", "t-0"), ("p2", "t-1")))
        value = f"{process}.{number}"
        self.say(process, "send", s="invoke", part=part, key=f"k{number % 3}", v=value)
        end = self.rng.choices(("ok", "fail", "info", "info-written"), (20, 1, 1, 1))[0]
        offset = len(self.logs[part])
        if end in ("ok", "info-written"):
            self.logs[part].append(value)
        if end == "ok":
            if process == "p2" and self.rng.random() < 0.1:
                self.logs[part].append(value)  # at least once
            told = -1 if self.rng.random() < 0.05 else offset
            self.say(process, "send", s="ok", v=value, offset=told)
        elif end == "fail":
            self.say(process, "send", s="fail", v=value, error="too large")

    def poll(self, process: str, part: str, count: int) -> int:
        start = self.places[process, part]
        found = [[start + at, value] for at, value in enumerate(self.logs[part][start : start + count])]
        self.places[process, part] = start + len(found)
        self.say(process, "poll", records={part: found} if found else {})
        return len(found)

    def seek(self, process: str, kind: str, parts: dict[str, int]) -> None:
        self.say(process, kind, parts=parts)
        for part, offset in parts.items():
            self.places[process, part] = offset

    def rebalance(self, part: str) -> None:
        self.say("c2", "revoke", parts={part: None})
        self.say("c2", "assign", parts={part: None})
        self.places["c2", part] = self.rng.randrange(self.places["c2", part] + 1)


def clean(seed: int, sends: int = 60) -> CleanWorld:
    return CleanWorld(random.Random(seed), sends)


def judge(events: list[Event], *, final: bool = True) -> Verdict:
    history = History()
    history.add_lines(json.dumps(event) + "\n" for event in events)
    return check(history, final=final)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(0, 150))
def test_a_clean_history_is_left_alone(seed: int, sends: int) -> None:
    verdict = judge(clean(seed, sends).events)
    assert verdict.problems == []
    assert verdict.sent == sends


# -- plants: each spoils a clean history and gives the kinds that must (and may) be found ------------------


def acknowledged(world: CleanWorld, process: str = "p1") -> list[Event]:
    """Acknowledged sends with a known offset, none of them first or last of its partition."""
    found = []
    for event in world.events:
        if event["f"] == "send" and event["s"] == "ok" and event["p"] == process and event["offset"] > 0:
            part = part_of(world, event["v"])
            if event["offset"] < len(world.logs[part]) - 1:
                found.append(event)
    return found


def part_of(world: CleanWorld, value: str) -> str:
    return next(str(event["part"]) for event in world.events if event.get("v") == value and "part" in event)


def polls(world: CleanWorld, process: str, records: int) -> list[tuple[Event, str]]:
    """Polls of `process` with at least so many records, and their partition."""
    return [
        (event, part)
        for event in world.events
        if event["f"] == "poll" and event["p"] == process
        for part, found in event["records"].items()
        if len(found) >= records
    ]


def unread(world: CleanWorld, value: str) -> None:
    for event in world.events:
        for found in event.get("records", {}).values():
            found[:] = [each for each in found if each[1] != value]


def plant_lost_write(world: CleanWorld) -> None:
    unread(world, world.rng.choice(acknowledged(world))["v"])


def plant_unseen(world: CleanWorld) -> None:
    world.say("p1", "send", s="invoke", part="t-0", key="k", v="p1.last")
    world.say("p1", "send", s="ok", v="p1.last", offset=len(world.logs["t-0"]))


def plant_unseen_without_offset(world: CleanWorld) -> None:
    world.say("p1", "send", s="invoke", part="t-0", key="k", v="p1.last")
    world.say("p1", "send", s="ok", v="p1.last", offset=-1)


def plant_duplicate(world: CleanWorld) -> None:
    event = world.rng.choice(acknowledged(world))
    part = part_of(world, event["v"])
    world.logs[part].append(event["v"])
    world.poll("c1", part, 1)


def plant_inconsistent_offsets(world: CleanWorld) -> None:
    event, part = world.rng.choice(polls(world, "c1", 1))
    found = world.rng.choice(event["records"][part])
    world.say("p1", "send", s="invoke", part=part, key="k", v="p1.other")
    found[1] = "p1.other"


def plant_offset_of_an_acknowledgement(world: CleanWorld) -> None:
    world.rng.choice(acknowledged(world))["offset"] -= 1


def plant_aborted_read(world: CleanWorld) -> None:
    end = world.rng.choice(acknowledged(world))
    end["s"] = "fail"
    end["error"] = "refused"
    del end["offset"]


def plant_phantom(world: CleanWorld) -> None:
    world.logs["t-0"].append("nobody.1")
    world.poll("c1", "t-0", 1)


def plant_misplaced(world: CleanWorld) -> None:
    value = world.rng.choice(acknowledged(world))["v"]
    for event in world.events:
        if event.get("v") == value and event["s"] == "invoke":
            event["part"] = "t-9"


def plant_poll_skip(world: CleanWorld) -> None:
    """The first record of one poll of the assigned consumer is left out; the other consumer has it."""
    for event, part in polls(world, "c1", 2):
        del event["records"][part][0]
        return
    raise AssertionError("no poll with two records")


def plant_nonmonotonic_poll(world: CleanWorld) -> None:
    for event, part in polls(world, "c1", 1):
        offset = event["records"][part][0][0]
        if offset > 0:
            event["records"][part].insert(0, [offset - 1, world.logs[part][offset - 1]])
            return
    raise AssertionError("no such poll")


def plant_internal_skip(world: CleanWorld) -> None:
    for event, part in polls(world, "c1", 3):
        del event["records"][part][1]
        return
    raise AssertionError("no poll with three records")


def plant_internal_nonmonotonic(world: CleanWorld) -> None:
    event, part = polls(world, "c1", 2)[0]
    found = event["records"][part]
    found[0], found[1] = found[1], found[0]


def plant_skip_of_the_first_after_a_seek(world: CleanWorld) -> None:
    world.seek("c1", "seek", {"t-0": 2})
    world.places["c1", "t-0"] = 3
    world.poll("c1", "t-0", 5)


def plant_nonmonotonic_send(world: CleanWorld) -> None:
    """Two records of the idempotent producer change places in every way they are seen."""
    mine = [event for event in acknowledged(world) if part_of(world, event["v"]) == "t-0"]
    first, second = mine[0], mine[1]
    first["offset"], second["offset"] = second["offset"], first["offset"]
    swapped = {first["v"]: second["v"], second["v"]: first["v"]}
    for event in world.events:
        for found in event.get("records", {}).values():
            for each in found:
                each[1] = swapped.get(each[1], each[1])


def plant_stale_offset(world: CleanWorld) -> None:
    """A plain producer's record, sent after everything else was read, lands in a hole further down."""
    for part, log in world.logs.items():
        for offset, value in enumerate(log):
            if value.startswith("p2."):
                world.events = [event for event in world.events if event.get("v") != value]
                moved = {"f": "send", "p": "p2"}
                world.events.append(
                    {**moved, "t": world.now + 1, "s": "invoke", "part": part, "key": "k", "v": value}
                )
                world.events.append({**moved, "t": world.now + 2, "s": "ok", "v": value, "offset": offset})
                return


def plant_lost_topic(world: CleanWorld) -> None:
    world.say("admin", "create", s="invoke", topic="kept")
    world.say("admin", "create", s="ok", topic="kept")
    world.say("admin", "create", s="invoke", topic="maybe")
    world.say("admin", "create", s="invoke", topic="gone")
    world.say("admin", "create", s="ok", topic="gone")
    world.say("admin", "topics", names=["kept", "t"])


PLANTS: list[tuple[Callable[[CleanWorld], None], str]] = [
    (plant_lost_write, "lost-write"),
    (plant_unseen, "unseen"),
    (plant_unseen_without_offset, "unseen"),
    (plant_duplicate, "duplicate"),
    (plant_inconsistent_offsets, "inconsistent-offsets"),
    (plant_offset_of_an_acknowledgement, "inconsistent-offsets"),
    (plant_aborted_read, "G1a"),
    (plant_phantom, "phantom"),
    (plant_misplaced, "misplaced"),
    (plant_poll_skip, "poll-skip"),
    (plant_nonmonotonic_poll, "nonmonotonic-poll"),
    (plant_internal_skip, "int-poll-skip"),
    (plant_internal_nonmonotonic, "int-nonmonotonic-poll"),
    (plant_skip_of_the_first_after_a_seek, "poll-skip"),
    (plant_nonmonotonic_send, "nonmonotonic-send"),
    (plant_stale_offset, "stale-offset"),
    (plant_lost_topic, "lost-topic"),
]


@each_case(("plant", "kind"), PLANTS, ids=lambda each: getattr(each, "__name__", str(each)))
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_a_planted_anomaly_is_found_and_named(
    plant: Callable[[CleanWorld], None], kind: str, seed: int
) -> None:
    world = clean(seed, 200)
    plant(world)
    verdict = judge(world.events)
    assert verdict.kinds[kind] >= 1
    assert not verdict.sound


SINGLE = [
    plant_lost_topic,
    plant_phantom,
    plant_unseen,
    plant_skip_of_the_first_after_a_seek,
    plant_aborted_read,
]


@each_case("plant", SINGLE)
def test_an_anomaly_that_is_alone_is_named_once(plant: Callable[[CleanWorld], None]) -> None:
    world = clean(3, 200)
    plant(world)
    assert sum(judge(world.events).kinds.values()) == 1


def test_what_is_not_yet_read_is_no_loss_before_the_final_reads() -> None:
    world = clean(5)
    plant_unseen(world)
    assert judge(world.events, final=False).sound
    assert not judge(world.events).sound


def test_a_rebalance_starts_afresh_and_a_known_place_does_not() -> None:
    log = [[offset, f"p.{offset}"] for offset in range(6)]
    base: list[Event] = [{"p": "p", "t": 0, "f": "producer", "idempotent": True}]
    for offset in range(6):
        base.append(
            {"p": "p", "t": 1, "f": "send", "s": "invoke", "part": "t-0", "key": "", "v": f"p.{offset}"}
        )
    reader = [{"p": "r", "t": 50, "f": "poll", "records": {"t-0": log}}]
    first: Event = {"p": "c", "t": 20, "f": "poll", "records": {"t-0": log[:2]}}
    last: Event = {"p": "c", "t": 40, "f": "poll", "records": {"t-0": log[4:]}}

    def kinds(*between: Event) -> dict[str, int]:
        return dict(judge([*base, first, *between, last, *reader]).kinds)

    assert kinds() == {"poll-skip": 1}
    assert kinds({"p": "c", "t": 30, "f": "assign", "parts": {"t-0": None}}) == {}
    assert kinds({"p": "c", "t": 30, "f": "revoke", "parts": {"t-0": 3}}) == {}
    assert kinds({"p": "c", "t": 30, "f": "seek", "parts": {"t-0": 4}}) == {}
    assert kinds({"p": "c", "t": 30, "f": "seek", "parts": {"t-0": 3}}) == {"poll-skip": 1}
    assert kinds({"p": "c", "t": 30, "f": "seek", "parts": {"t-0": 5}}) == {"nonmonotonic-poll": 1}
    assert kinds({"p": "c", "t": 30, "f": "assign", "parts": {"t-1": None}}) == {"poll-skip": 1}


def test_an_offset_that_holds_no_record_is_no_skip() -> None:
    events: list[Event] = [{"p": "p", "t": 0, "f": "producer", "idempotent": True}]
    for value in ("p.0", "p.1"):
        events.append({"p": "p", "t": 1, "f": "send", "s": "invoke", "part": "t-0", "key": "", "v": value})
    events.append({"p": "c", "t": 2, "f": "assign", "parts": {"t-0": 0, "t-5": 0}})
    events.append({"p": "c", "t": 2, "f": "poll", "records": {"t-0": [[3, "p.0"], [7, "p.1"]]}})
    events.append({"p": "c", "t": 2, "f": "note", "text": "nothing of interest"})
    assert judge(events).sound


def test_a_history_the_harness_got_wrong_is_refused() -> None:
    begin = {"p": "p", "t": 0, "f": "producer", "idempotent": True}
    send = {"p": "p", "t": 1, "f": "send", "s": "invoke", "part": "t-0", "key": "", "v": "p.0"}
    end = {"p": "p", "t": 2, "f": "send", "s": "ok", "v": "p.0", "offset": 0}
    for wrong in (
        [begin, send, send],
        [begin, end],
        [begin, send, {**end, "p": "other"}],
        [begin, send, end, end],
        [{"p": "p", "t": 0, "f": "dance"}],
    ):
        with pytest.raises(BrokenHistory):
            judge(wrong)
    history = History()
    with pytest.raises(BrokenHistory):
        history.add_lines(["{nonsense\n"])
    history.add_lines(['{"p": "p", "t": 1, "f"'])
    assert history.cut_lines == 1


def test_the_kept_texts_are_bounded_and_the_counts_are_not() -> None:
    world = clean(1)
    for number in range(80):
        world.logs["t-0"].append(f"nobody.{number}")
    world.poll("c1", "t-0", 100)
    verdict = judge(world.events)
    assert verdict.kinds == {"phantom": 80}
    assert len(verdict.problems) == 50


def test_fifty_thousand_operations_take_seconds() -> None:
    events = clean(9, 40_000).events
    assert len(events) > 50_000
    history = History()
    for event in events:
        history.add(event)
    began = time.process_time()
    assert check(history).sound
    assert time.process_time() - began < 5
