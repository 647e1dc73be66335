"""Single players brought into a wanted state, for the mirror tests of the core's modules.

An entry's payload is the names of its targets, `"a b"`; its part for each is `"a@<position>"`, of 10 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lockstep.player.core.messages import Entry, Part
from lockstep.player.core.player import Player
from lockstep.player.core.ready import PlayerReady
from lockstep.player.core.settings import Bound, PlayerSettings
from lockstep.player.core.target import Target

LOG_ID = "cluster/topic/0"
START_MS = 1000
PART_BYTES = 10
END = 1 << 40
"""Of a log that has whatever a target may say it has."""


def route(entry: Entry) -> list[tuple[str, Part]]:
    names = str(entry.payload).split()
    return [(name, Part(entry.position, f"{name}@{entry.position}", PART_BYTES)) for name in names]


def settings(**others: Any) -> PlayerSettings:
    """Small bounds, no dummies."""
    small: dict[str, Any] = {
        "batch": Bound(3, 1000),
        "window": Bound(100, 10_000),
        "normal": Bound(5, 1000),
        "catchup": Bound(4, 1000),
        "dummy_every": 0,
    }
    return PlayerSettings(**{**small, **others})


def player(*names: str, **others: Any) -> Player:
    """Player 7 at 1,000 ms, whose targets have been greeted with their term 1."""
    made = Player(LOG_ID, 7, route, settings(**others), START_MS, lambda n: n - 1)
    for name in names:
        made.add(name, 0, START_MS)
    made.tick(START_MS)
    made.ready()
    return made


def answer(core: Player, name: str, position: int, first: int = 0, end: int = END) -> None:
    """The target's newest Hello is answered."""
    core.on_connected(name, core.targets[name].term, position, first, end, core.now_ms)


def playing(*names: str, at: int = -1, **others: Any) -> Player:
    """All of them in N, having everything up to `at`, which is where the main stream stands."""
    core = player(*names, **others)
    for name in names:
        answer(core, name, at)
    assert core.ready().start_position == at + 1
    return core


def away(core: Player, name: str) -> None:
    """Its stream breaks."""
    core.on_disconnected(name, core.targets[name].term, core.now_ms)


def greeted_again(core: Player, name: str) -> None:
    """After a backoff it has been sent another Hello."""
    core.tick(core.targets[name].health.next_event_ms)
    assert [hello.target_term for each, hello in core.ready().hellos if each == name]


def recovering(at: int, current: int, **others: Any) -> Player:
    """Target `a` in RF, which has missed what is above `at` up to `current`."""
    core = playing("a", "b", at=at, **others)
    away(core, "a")
    core.feed([], current, core.now_ms)
    greeted_again(core, "a")
    answer(core, "a", at)
    return core


def entries(positions: Iterable[int], names: str = "a") -> list[Entry]:
    return [Entry(position, names) for position in positions]


def feed(core: Player, positions: Iterable[int], names: str = "a") -> None:
    """The main stream brings these, and nothing beyond."""
    run = entries(positions, names)
    core.feed(run, run[-1].position, core.now_ms)


def fetched(core: Player, positions: Iterable[int], through: int, names: str = "a") -> None:
    core.on_fetched("a", core.targets["a"].term, entries(positions, names), through, core.now_ms)


def written(core: Player, name: str = "a") -> None:
    core.on_written(name, core.targets[name].term, core.now_ms)


def acknowledged(core: Player, position: int, name: str = "a") -> None:
    core.on_acknowledged(name, core.targets[name].term, position, core.now_ms)


def sent(ready: PlayerReady, name: str = "a") -> list[list[int]]:
    """The positions of each batch handed out for a target."""
    return [[part.position for part in batch.parts] for each, _, batch in ready.batches if each == name]


def closed(ready: PlayerReady) -> list[tuple[str, int]]:
    """Target and term of each stream to close."""
    return [(name, term) for name, term, _ in ready.closes]


def waiting(target: Target) -> tuple[list[int], list[int]]:
    """Positions in the catch-up and the normal queue."""
    queue = target.queue
    return [p.position for p in queue.catchup.parts], [p.position for p in queue.normal.parts]
