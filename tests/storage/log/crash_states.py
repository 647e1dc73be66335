"""Every state a crash can leave, opened and judged: `python -m tests.storage.log.crash_states`.

Each scenario records its file operations. At every moment of the record the disk may hold, of what was not
flushed, any subset, sectors of a write apart: enumerated in full while few operations are pending, by one
lost, one kept, halves and random subsets beyond. Every distinct disk is opened, compared with what had been
promised at that moment, written on and opened again; of every eighth also the recovery itself crashes.
`--faults` plants known mistakes one by one and expects each to be caught. Exit status 1 for a problem or
for a planted mistake that nothing caught.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lockstep.storage.types import StorageError
from tests.storage.log.crash_scenarios import SCENARIOS
from tests.storage.log.crash_world import EMPTY, Expectation, World, judge
from tests.storage.log.planted_faults import AIMED_AT, FAULTS
from tests.storage.log.simulated_disk import Note, SimulatedFileSystem, Write, sectors_of

FEW = 4
"""All subsets while no more operations than this are pending; more sectors than this are sampled too."""
Lost = dict[int, frozenset[int] | None]


def losses(disk: SimulatedFileSystem, upto: int, rng: random.Random) -> Iterator[Lost]:
    """What may be lost before operation `upto`."""
    pending = disk.pending(upto)
    everything: Lost = dict.fromkeys(pending)
    yield {}
    if not pending:
        return
    if len(pending) <= FEW:
        for size in range(1, len(pending) + 1):
            for subset in itertools.combinations(pending, size):
                yield dict.fromkeys(subset)
    else:
        yield everything
        for each in pending:
            yield {each: None}
            yield {at: None for at in pending if at != each}
    for each in pending:
        operation = disk.record[each]
        if isinstance(operation, Write):
            for torn in _torn(operation, rng):
                yield {each: torn}
                yield {**everything, each: torn}
    for _ in range(4 if len(pending) > 1 else 0):
        yield _any_loss(disk, pending, rng)


def _torn(write: Write, rng: random.Random) -> Iterator[frozenset[int]]:
    sectors = list(sectors_of(write))
    if len(sectors) == 1:
        return
    yield frozenset(sectors[len(sectors) // 2 :])
    yield frozenset(sectors[: len(sectors) // 2])
    yield frozenset(sectors[:1])
    yield frozenset(sectors[-1:])
    if len(sectors) > FEW:
        yield frozenset(rng.sample(sectors, rng.randrange(1, len(sectors))))


def _any_loss(disk: SimulatedFileSystem, pending: list[int], rng: random.Random) -> Lost:
    lost: Lost = {}
    for at in pending:
        operation = disk.record[at]
        luck = rng.random()
        if luck < 0.4:
            lost[at] = None
        elif luck < 0.7 and isinstance(operation, Write):
            lost[at] = frozenset(s for s in sectors_of(operation) if rng.random() < 0.5)
    return lost


def moments(disk: SimulatedFileSystem) -> Iterator[tuple[int, Expectation]]:
    """Every place in the record where power may go, with what was promised by then."""
    expected = EMPTY
    for at, operation in enumerate(disk.record):
        if isinstance(operation, Note):
            assert isinstance(operation.what, Expectation)
            expected = operation.what
        yield at + 1, expected


class Enumeration:
    """Judged states, by scenario, and the problems found."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seen: set[tuple[int, int]] = set()
        self.counts: dict[str, int] = dict.fromkeys(SCENARIOS, 0)
        self.moments = 0
        self.problems: list[dict[str, object]] = []

    @property
    def states(self) -> int:
        return sum(self.counts.values())

    def scenario(self, name: str, seed: int, limit: int) -> None:
        """One run of one scenario, judged in up to about `limit` states."""
        try:
            world = SCENARIOS[name](random.Random(seed))
        except StorageError as error:  # a crash in the scenario itself left something that cannot be opened
            self._problem(name, seed, -1, {}, f"{type(error).__name__}: {error}")
            return
        everything = [
            (upto, expected, lost)
            for upto, expected in moments(world.disk)
            for lost in losses(world.disk, upto, self.rng)
        ]
        self.moments += len(world.disk.record)
        self.rng.shuffle(everything)
        before = self.counts[name]
        for upto, expected, lost in everything:
            if self.counts[name] - before >= limit:
                return
            self._judge(name, seed, world, upto, expected, lost)

    def _judge(
        self, name: str, seed: int, world: World, upto: int, expected: Expectation, lost: Lost
    ) -> None:
        image = world.disk.crash(upto, lost)
        key = (image.digest(), id(expected))
        if key in self.seen:
            return
        self.seen.add(key)
        self.counts[name] += 1
        judged = judge(image, expected, world.options)
        if judged.problem:
            self._problem(name, seed, upto, lost, judged.problem)
        elif len(self.seen) % 8 == 0:
            self._judge_recovery(name, seed, world, judged.after, upto, lost)

    def _judge_recovery(
        self, name: str, seed: int, world: World, disk: SimulatedFileSystem, upto: int, lost: Lost
    ) -> None:
        """The recovery crashes as well."""
        at, expected = self.rng.choice(list(moments(disk)))
        again = disk.crash(at, self.rng.choice(list(losses(disk, at, self.rng))))
        self.counts[name] += 1
        judged = judge(again, expected, world.options)
        if judged.problem:
            self._problem(name, seed, upto, lost, f"second crash at {at}: {judged.problem}")

    def _problem(self, name: str, seed: int, upto: int, lost: Lost, text: str) -> None:
        what = {at: sorted(sectors) if sectors is not None else "all" for at, sectors in lost.items()}
        self.problems.append(
            {"scenario": name, "seed": seed, "operation": upto, "lost": what, "problem": text}
        )


def enumerate_states(
    states: int, seed: int, stop_at_first: bool = False, scenarios: Sequence[str] = tuple(SCENARIOS)
) -> Enumeration:
    """Rounds over the scenarios with new seeds until that many distinct states have been judged."""
    found = Enumeration(seed)
    turn = 0
    share = max(50, states // (len(SCENARIOS) * 4))
    while found.states < states:
        for name in scenarios:
            found.scenario(name, seed * 1000 + turn, share)
            if stop_at_first and found.problems:
                return found
        turn += 1
    return found


def caught(fault: str, states: int, seed: int) -> tuple[int, str]:
    """(states until a planted fault was caught, how it showed); the text is empty where nothing caught it."""
    with FAULTS[fault]():
        found = enumerate_states(states, seed, True, AIMED_AT.get(fault, tuple(SCENARIOS)))
    return found.states, str(found.problems[0]["problem"]) if found.problems else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--states", type=int, default=10_000, help="distinct states to judge")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", action="store_true", help="also plant each known mistake")
    parser.add_argument("--json", type=Path, help="write the result there")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, {arguments.states} states, {len(SCENARIOS)} scenarios", flush=True)
    start = time.monotonic()
    found = enumerate_states(arguments.states, arguments.seed)
    seconds = time.monotonic() - start
    for problem in found.problems[:10]:
        print(json.dumps(problem), flush=True)
    print(
        f"{found.states} states of {found.moments} moments, {seconds:.1f} s: {len(found.problems)} problems",
        flush=True,
    )
    faults = {}
    for name in FAULTS if arguments.faults else ():
        states, how = caught(name, 4000, arguments.seed)
        faults[name] = {"states": states, "problem": how}
        print(
            f"planted {name}: {f'caught after {states} states: {how}' if how else 'NOT CAUGHT'}",
            flush=True,
        )
    if arguments.json:
        result = {
            "seed": arguments.seed,
            "states": found.states,
            "by_scenario": found.counts,
            "moments": found.moments,
            "seconds": round(seconds, 1),
            "problems": found.problems,
            "faults": faults,
        }
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if found.problems or not all(f["problem"] for f in faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
