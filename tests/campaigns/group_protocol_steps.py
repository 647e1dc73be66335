"""Random sequences of requests about one consumer group, as the campaign of the group protocols draws them.

Owns: the styles of sequences and their steps, drawn from a seed and a number alone. A step names members by
slot and everything that an earlier answer decides by a word ("current", "previous", "assigned"), so that
one sequence fits two brokers. Does not: send anything (`group_protocol_driver.py`).

Two brokers need not assign alike where Kafka itself goes by the order of a hash table: sequences in the style
"settled" use the uniform assignor and compare what all orders have in common; all others use the range
assignor, whose result depends on the names of members alone, and compare each answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

TOPICS: Final[Mapping[str, int]] = {"one": 1, "two": 2, "three": 3, "twelve": 12}
"""Topics that exist all the time, with their numbers of partitions."""
OWN: Final = ("z0", "z1", "z2")
"""Topics of a sequence of its own; their real names are longer."""
REGEXES: Final = (
    "t.*", "t(wo|hree)", "wo", ".*e", "one|two", "nothing.*", "(?i)TWO", "[[:alpha:]]{3}", "t\\w+",
    "\\Qtwo\\E", "(?P<n>one)", "one$", "^one", "tw[^e]", "(?s)t.o", "two\\z",
)  # fmt: skip
REFUSED_REGEXES: Final = ("(", "(?=two)two", "(t)\\1", "t{1001}", "t**", "[z-a]", "\\2", "(?<!x)one")
"""RE2 has none of these; other engines have some."""
OWN_REGEX: Final = "z.*"
STYLES: Final[Mapping[str, int]] = {
    "plain": 60,
    "topics": 9,
    "classic": 15,
    "settled": 11,
    "interval": 3,
    "timeout": 2,
}
LONG_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Step:
    """What is done, by which member, in which words."""

    do: str
    slot: int = 0
    words: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.do} {self.slot} {dict(self.words)}"


@dataclass(frozen=True, slots=True)
class RequestSequence:
    """One sequence. Invariant: equal seed and number give an equal sequence."""

    seed: int
    number: int
    style: str
    steps: Sequence[Step]


class Draw:
    """The steps of one sequence, one after the other; knows who was told to join and to leave, no answers."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(f"{seed}/{number}")
        self.style = self.random.choices(list(STYLES), list(STYLES.values()))[0]
        self.steps: list[Step] = []
        self.slots = self.random.choice([1, 2, 2, 3, 3, 4])
        self.static = {each for each in range(4) if self.random.random() < 0.25}
        self.joined: set[int] = set()
        self.classic: set[int] = set()
        self.assignor = "uniform" if self.style == "settled" else "range"
        self.alone = False
        """A classic member has no topic in common with the others."""

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def add(self, do: str, slot: int = 0, **words: Any) -> None:
        self.steps.append(Step(do, slot, words))

    def among(self, kinds: Mapping[str, int]) -> str:
        return self.random.choices(list(kinds), list(kinds.values()))[0]

    def member(self) -> int:
        """One that joined, mostly."""
        if self.joined and not self.chance(0.04):
            return self.random.choice(sorted(self.joined))
        return self.random.randrange(self.slots)

    def subscription(self) -> dict[str, Any]:
        """Names, a regex, both or nothing, as fields of a heartbeat."""
        if self.alone:
            return {"names": self.random.sample(["one", "two", "three"], self.random.randint(1, 3))}
        known = [*TOPICS, *(OWN if self.style == "topics" else ())]
        if self.style in ("interval", "timeout"):  # to wait for a regex would take their time
            return {"names": self.random.sample(known, 2)}
        names = self.random.sample(known, self.random.randint(1, min(3, len(known))))
        if self.chance(0.05):
            names.append("missing")
        regex = self.random.choice(REGEXES)
        if self.style == "topics" and self.chance(0.5):
            regex = OWN_REGEX
        kind = self.among({"names": 78, "regex": 12, "both": 5, "nothing": 3, "refused": 2})
        if kind == "names":
            return {"names": names}
        if kind == "nothing":
            return {"names": []}
        if kind == "refused":
            return {"regex": self.random.choice(REFUSED_REGEXES)}
        return {"regex": regex} if kind == "regex" else {"regex": regex, "names": names}


def join(draw: Draw, slot: int, **more: Any) -> None:
    """The first heartbeat of a member; `more` has the last word."""
    words: dict[str, Any] = {"epoch": "join", "owned": "empty", "timeout": LONG_MS, "assignor": draw.assignor}
    words |= draw.subscription()
    words["v"] = 1 if "regex" in words or draw.chance(0.7) else 0
    if slot in draw.static:
        words["instance"] = True
    if draw.chance(0.1):
        words["rack"] = draw.random.choice(["r1", "r2"])
    words |= more
    draw.joined.add(slot)
    draw.classic.discard(slot)
    draw.add("beat", slot, **words)


def beat(draw: Draw) -> None:
    """A heartbeat of a member, right or wrong."""
    words: dict[str, Any] = {
        "epoch": draw.among({"current": 82, "previous": 12, "next": 3, "older": 3}),
        "owned": draw.among({"right": 54, "null": 22, "part": 6, "former": 8, "foreign": 3, "empty": 7}),
    }
    if draw.chance(0.2):
        words |= draw.subscription()
    if draw.chance(0.12):  # all that makes it a full one
        words |= {"timeout": LONG_MS, "assignor": draw.assignor}
        words.setdefault("names", draw.random.sample(["one", "two", "three"], 2))
    if draw.chance(0.03):
        words["regex"] = ""
    words["v"] = 1 if "regex" in words or draw.chance(0.7) else 0
    slot = draw.member()
    if slot in draw.static and draw.chance(0.2):
        words["instance"] = True
    if draw.chance(0.02):
        words["id"] = "former"
    draw.add("beat", slot, **words)


def round_of_all(draw: Draw) -> None:
    """Every member heartbeats as a client does."""
    for slot in sorted(draw.joined):
        if slot in draw.classic:
            draw.add("classic_beat", slot, generation="current")
        else:
            owned = draw.among({"right": 9, "null": 1})
            draw.add("beat", slot, v=1, epoch="current", owned=owned)


def leave(draw: Draw) -> None:
    slot = draw.member()
    words: dict[str, Any] = {"v": 1, "epoch": "leave", "owned": "null"}
    if slot in draw.static:
        words |= {"epoch": draw.random.choice(["leave", "static_leave"]), "instance": True}
    draw.joined.discard(slot)
    draw.add("beat", slot, **words)


def come_again(draw: Draw) -> None:
    """A member joins anew, with its own id or, a static one, as a successor with another."""
    slot = draw.member()
    words: dict[str, Any] = {}
    if slot in draw.static and draw.chance(0.6):
        words["id"] = "new"
        if draw.chance(0.7):
            draw.add("beat", slot, v=1, epoch="static_leave", owned="null", instance=True)
            if draw.chance(0.3):
                draw.add("describe", v=1)
    join(draw, slot, **words)
    if "id" in words and draw.chance(0.5):
        draw.add("beat", slot, v=1, epoch="current", owned="null", id="former")


def newcomer(draw: Draw) -> None:
    free = [each for each in range(draw.slots) if each not in draw.joined]
    if free:
        join(draw, free[0], **({"id": "new"} if draw.chance(0.3) else {}))
    else:
        beat(draw)


WRONG: Final[Mapping[str, Mapping[str, Any]]] = {
    "no timeout": {"timeout": -1},
    "owns at the join": {"owned": "foreign"},
    "owns null at the join": {"owned": "null"},
    "empty rack": {"rack": ""},
    "empty instance": {"instance_id": ""},
    "unknown assignor": {"assignor": "sticky"},
    "empty assignor": {"assignor": ""},
    "no group": {"group": ""},
    "no id": {"id": "none", "v": 1},
    "epoch -3": {"epoch": "below"},
    "static leave of a dynamic member": {"epoch": "static_leave", "instance": False},
    "static leave of an unknown instance": {"epoch": "static_leave", "instance_id": "nobody"},
    "no subscription": {"names": None, "regex": None},
    "empty regex": {"names": None, "regex": "", "v": 1},
    "unknown member": {"epoch": "seven", "id": "unknown"},
    "leave of an unknown member": {"epoch": "leave", "id": "unknown"},
    "unknown group": {"group": "nobody's", "epoch": "seven"},
    "leave of an unknown group": {"group": "nobody's", "epoch": "leave"},
    "wrong regex": {"regex": "(", "v": 1},
    "wrong assignor later": {"epoch": "current", "assignor": "sticky"},
    "empty rack later": {"epoch": "current", "rack": ""},
    "zero timeout": {"timeout": 0},
}
"""Changes to the words of a join that the broker must refuse, or need not; the name is for the reader."""


def wrong(draw: Draw) -> None:
    slot = draw.member()
    words: dict[str, Any] = {"v": 1, "epoch": "join", "owned": "empty", "timeout": LONG_MS}
    words |= {"assignor": draw.assignor, "names": ["two"], "instance": slot in draw.static}
    name = draw.random.choice(sorted(WRONG))
    draw.add("beat", slot, **{**words, "wrong": name, **WRONG[name]})


def commit(draw: Draw) -> None:
    words: dict[str, Any] = {
        "v": draw.random.choice([8, 9, 9, 9, 10]),
        "epoch": draw.among({"current": 45, "previous": 30, "next": 8, "below_zero": 9, "older": 8}),
        "id": draw.among({"right": 85, "nobody": 10, "unknown": 5}),
        "where": draw.random.choices(
            ["assigned", "former", "two-1", "one-0", "missing-0"], [6, 3, 2, 1, 1], k=2
        ),
        "offset": draw.random.randint(1, 99),
    }
    draw.add("commit", draw.member(), **words)


def fetch(draw: Draw) -> None:
    words: dict[str, Any] = {"v": draw.random.choice([7, 8, 9, 9, 9]), "all": draw.chance(0.5)}
    words["epoch"] = draw.among({"current": 50, "previous": 20, "next": 10, "below_zero": 20})
    words["id"] = draw.among({"right": 70, "null": 20, "unknown": 10})
    if words["id"] == "null":
        words["epoch"] = "below_zero"
    draw.add("fetch", draw.member(), **words)


def look(draw: Draw) -> None:
    """One of the requests that only read, or that a group with members refuses."""
    kind = draw.among(
        {"describe": 12, "list": 3, "describe_groups": 3, "delete_group": 2, "offset_delete": 3}
    )
    versions = {"describe": (0, 1), "list": (3, 4, 5), "describe_groups": (4, 5, 6), "delete_group": (1, 2)}
    draw.add(kind, v=draw.random.choice(versions.get(kind, (0,))), topic=draw.random.choice([*TOPICS]))


def classic_leave_of_another(draw: Draw) -> None:
    slot = draw.member()
    draw.add("leave_group", slot, by="instance" if slot in draw.static and draw.chance(0.5) else "id")
    draw.joined.discard(slot)


def configure(draw: Draw) -> None:
    name, values = draw.random.choice(
        [
            ("consumer.heartbeat.interval.ms", ["6000", "7000", "1", "16000"]),
            ("consumer.session.timeout.ms", ["50000", "1", "61000"]),
            ("consumer.assignment.interval.ms", ["0", "-1", "15001"]),
            ("consumer.no.such.name", ["1"]),
        ]
    )
    draw.add("configure", name=name, value=draw.random.choice(values))


Action = Callable[[Draw], None]
PLAIN: Final[Mapping[Action, int]] = {
    newcomer: 14, beat: 34, round_of_all: 14, leave: 5, come_again: 5, commit: 10, fetch: 5, look: 8,
    wrong: 4, classic_leave_of_another: 1, configure: 1,
}  # fmt: skip


def act(draw: Draw, actions: Mapping[Action, int], least: int, most: int) -> None:
    for _ in range(draw.random.randint(least, most)):
        draw.random.choices(list(actions), list(actions.values()))[0](draw)


def plain(draw: Draw) -> None:
    if draw.slots == 1 and draw.chance(0.15):
        join(draw, 0, id="none", v=0, names=["two"], regex=None)  # the broker makes an id
    else:
        join(draw, 0)
    act(draw, PLAIN, 8, 22)


# --- topics that come and go -----------------------------------------------------------------


def topic_change(draw: Draw) -> None:
    name = draw.random.choice(OWN)
    draw.add("topic", change=draw.among({"create": 4, "grow": 3, "delete": 3}), name=name)
    if draw.chance(0.6):
        round_of_all(draw)


def topics(draw: Draw) -> None:
    for name in OWN[:2]:
        draw.add("topic", change="create", name=name)
    join(draw, 0, **({"names": [*OWN], "regex": None} if draw.chance(0.7) else {}))
    act(draw, {**PLAIN, topic_change: 22}, 8, 16)
    if draw.chance(0.06):
        draw.add("wait", seconds=10.5)  # after this, the broker evaluates a regex again
        round_of_all(draw)
        round_of_all(draw)


# --- classic members -----------------------------------------------------------------


def classic_join(draw: Draw) -> None:
    free = [each for each in range(2, 3 if draw.alone else 4) if each not in draw.joined]
    is_again = (draw.classic and draw.chance(0.6)) or not free
    slot = draw.random.choice(sorted(draw.classic) or [2]) if is_again else free[0]
    names = ["twelve"] if draw.alone else draw.random.sample([*TOPICS], draw.random.randint(1, 2))
    draw.joined.add(slot)
    draw.classic.add(slot)
    words: dict[str, Any] = {"names": names, "protocol": draw.among({"range": 8, "roundrobin": 2})}
    words |= {"type": "consumer" if draw.chance(0.96) else "connect", "instance": slot in draw.static}
    draw.add("classic_join", slot, v=draw.random.choice([5, 7, 9]), **words)
    if draw.chance(0.8):
        draw.add("classic_sync", slot, v=draw.random.choice([3, 5]), data=draw.chance(0.05))


def classic_step(draw: Draw) -> None:
    if not draw.classic:
        return classic_join(draw)
    slot = draw.random.choice(sorted(draw.classic))
    kind = draw.among({"beat": 6, "sync": 4, "join": 5, "leave": 2})
    generation = draw.among({"current": 85, "previous": 10, "next": 5})
    if kind == "join":
        return classic_join(draw)
    if kind == "leave":
        draw.joined.discard(slot)
        draw.classic.discard(slot)
        draw.add("leave_group", slot, by="id")
    elif kind == "sync":
        draw.add("classic_sync", slot, v=draw.random.choice([3, 5]), generation=generation)
    else:
        draw.add("classic_beat", slot, generation=generation)
    return None


def newcomer_of_two(draw: Draw) -> None:
    free = [each for each in range(2) if each not in draw.joined]
    if free:
        join(draw, free[0])
    else:
        beat(draw)


def classic(draw: Draw) -> None:
    """Classic and new members in one group, from either side.

    A broker makes the ids of classic members at random, by which the range assignor orders them: they have an
    instance id, which comes before, or topics of their own.
    """
    draw.slots = 4
    draw.alone = draw.chance(0.25)
    draw.static = set() if draw.alone else {0, 1, 2, 3}
    if draw.chance(0.5):
        classic_join(draw)
    else:
        join(draw, 0)
    mixed = {each: weight for each, weight in PLAIN.items() if each not in (newcomer, come_again)}
    act(draw, {**mixed, newcomer_of_two: 14, classic_step: 40}, 8, 20)


# --- the rest -----------------------------------------------------------------


def settled(draw: Draw) -> None:
    """Members under the uniform assignor, who heartbeat until nothing moves after each change."""
    same = draw.chance(0.7)
    names = draw.random.sample([*TOPICS], draw.random.randint(1, 3))
    whole = {"names": names, "regex": None} if same else {}
    join(draw, 0, brief=True, **whole)
    draw.add("settle", same=same)
    for _ in range(draw.random.randint(3, 8)):
        kind = draw.among({"join": 5, "leave": 3, "again": 2, "subscribe": 0 if same else 3, "rest": 1})
        free = [each for each in range(draw.slots) if each not in draw.joined]
        if kind == "join" and free:
            join(draw, free[0], brief=True, **whole)
        elif kind == "leave" and len(draw.joined) > 1:
            leave(draw)
        elif kind == "again":
            join(draw, draw.member(), brief=True, **whole)
        elif kind == "subscribe" and draw.joined:
            words = {"v": 1, "epoch": "current", "owned": "null", "brief": True, **draw.subscription()}
            draw.add("beat", draw.random.choice(sorted(draw.joined)), **words)
        draw.add("settle", same=same)


def interval(draw: Draw) -> None:
    """The interval between assignments, as it is by default."""
    draw.slots = max(2, draw.slots)
    draw.add("configure", name="consumer.assignment.interval.ms", value="1000")
    join(draw, 0, names=["two", "three"], regex=None)
    for _ in range(draw.random.randint(2, 4)):
        for _ in range(draw.random.randint(1, 3)):
            draw.random.choices([newcomer, leave, come_again, round_of_all], [4, 1, 1, 2])[0](draw)
        draw.add("describe", v=1)
        if draw.chance(0.85):
            draw.add("wait", seconds=1.15)
            round_of_all(draw)
            draw.add("describe", v=1)


def timeout(draw: Draw) -> None:
    """A member that is told to give partitions up and does not."""
    draw.slots = 3
    short = draw.random.choice([1_500, 2_000])
    join(draw, 0, names=["two", "three"], regex=None, timeout=short)
    if draw.chance(0.5):
        draw.add("beat", 0, v=1, epoch="current", owned="right")
    join(draw, 1, names=["two", "three"], regex=None)
    draw.add("beat", 0, v=1, epoch="current", owned=draw.random.choice(["null", "former"]))
    act(draw, {look: 2, fetch: 1}, 0, 2)
    if draw.chance(0.4):
        draw.add("beat", 0, v=1, epoch="current", owned="right")
    draw.add("wait", seconds=short / 1000 + 0.5)
    draw.add("beat", 0, v=1, epoch="current", owned="right")
    draw.add("beat", 1, v=1, epoch="current", owned="right")
    draw.add("describe", v=1)


_STYLES: Final[Mapping[str, Action]] = {
    "plain": plain,
    "topics": topics,
    "classic": classic,
    "settled": settled,
    "interval": interval,
    "timeout": timeout,
}


def sequence(seed: int, number: int) -> RequestSequence:
    """The sequence of that number; at its end all leave and the group is deleted."""
    draw = Draw(seed, number)
    _STYLES[draw.style](draw)
    draw.add("describe", v=1, brief=draw.style == "settled")
    for slot in range(4):
        draw.add("leave_group" if slot in draw.classic else "beat", slot, **_farewell(draw, slot))
    draw.add("list", v=5)
    draw.add("delete_group", v=2)
    draw.add("list", v=5)
    return RequestSequence(seed, number, draw.style, draw.steps)


def _farewell(draw: Draw, slot: int) -> dict[str, Any]:
    if slot in draw.classic:
        return {"by": "id"}
    return {"v": 1, "epoch": "leave", "owned": "null", "instance": slot in draw.static}
