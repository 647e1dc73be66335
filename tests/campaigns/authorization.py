"""`python -m tests.campaigns.authorization --pairs 100000`: random ACLs, on Apache Kafka and on Lockstep.

Owns: the sets of ACLs, drawn from a seed; the comparison of each response's errors with their places,
authorized operations and lists (`authorization_requests.py`), on brokers with
`allow.everyone.if.no.acl.found` false and true in turn (`authorization_brokers.py`); and the recorded
outcomes of Apache Kafka that CI holds Lockstep against (`--record`). The figures are recorded as the run goes
on; `--resume` continues one of the same source, `--minutes` ends it between two of its saves.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.campaigns import evidence
from tests.campaigns.authorization_brokers import (
    ALLOW,
    CLIENTS,
    CLUSTER,
    DENY,
    Broker,
    Question,
    acl,
    brokers,
)
from tests.campaigns.authorization_requests import ROWS, Draw, Fields

NAME: Final = "authorization"
RECORDED: Final = Path(__file__).parent / "recorded" / "authorization.json"
REQUESTS_OF_A_SET: Final = 25
SETS_OF_A_ROUND: Final = 500
"""Brokers are started for a round: Apache Kafka takes longer to start than to answer a thousand requests."""
SETS_OF_A_SAVE: Final = 40
FOR_EVER: Final = 1e9
TYPES: Final = {
    2: ("*", "t", "ta", "tab", "tb", "tc"),
    3: ("*", "g", "ga", "gab"),
    5: ("*", "x", "xa"),
    CLUSTER: ("kafka-cluster",),
}
"""Types of resources, and the names that ACLs have."""
OPERATIONS: Final = {
    2: (2, 3, 4, 5, 6, 7, 8, 10, 11),
    3: (2, 3, 6, 8, 10, 11),
    5: (2, 4, 8),
    CLUSTER: (2, 5, 7, 8, 9, 10, 11, 12),
}


def draw_acls(draw: random.Random) -> list[Fields]:
    """Up to eight ACLs that meet each other. None denies the administrator anything."""
    acls = []
    for _ in range(draw.randint(0, 8)):
        kind = draw.choice([2, 2, 2, 3, 3, 5, CLUSTER, CLUSTER])
        permission = draw.choice([ALLOW, ALLOW, ALLOW, DENY])
        hosts = ["127.0.0.2", "127.0.0.3", "127.0.0.2/31", "127.0.0.3/32"]
        if kind != CLUSTER or permission == ALLOW:
            hosts += ["*", "*", "*", "127.0.0.0/8", "10.0.0.0/8"]
        name = draw.choice(TYPES[kind])
        pattern = 4 if kind != CLUSTER and draw.random() < 0.4 else 3
        principal = draw.choice(["User:ANONYMOUS", "User:ANONYMOUS", "User:*", "User:other"])
        acls.append(
            acl(kind, name, pattern, principal, draw.choice(hosts), draw.choice(OPERATIONS[kind]), permission)
        )
    return acls


def questions(seed: int, number: int) -> tuple[list[Fields], list[Question]]:
    """The ACLs of a set, and its requests."""
    draw = random.Random(f"{seed}/{number}")
    acls = draw_acls(draw)
    return acls, [
        (draw.choice(CLIENTS), draw.randrange(len(ROWS)), f"{seed}/{number}/{each}")
        for each in range(REQUESTS_OF_A_SET)
    ]


class Difference(NamedTuple):
    """A request that the two brokers answer differently: the row it was drawn from, and all about it."""

    row: str
    text: str


class Campaign:
    """A run: what was asked, and what came out. Args: seed: of all that is drawn."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.asked: Counter[str] = Counter()
        self.denials = 0
        self.asked_again = 0
        self.seconds = 0.0
        self.earlier_differences = 0
        """Of a run that this one continues."""
        self.differences: list[Difference] = []

    def continue_run(self, figures: dict[str, Any]) -> None:
        """Go on from the figures of an interrupted run."""
        self.seed = figures["seed"]
        self.asked = Counter(figures["requests"])
        self.denials, self.asked_again = figures["with_a_denial"], figures["asked_again"]
        self.seconds, self.earlier_differences = figures["seconds"], figures["differences"]

    def ask_both(self, pair: Sequence[Broker], first: int, sets: int) -> None:
        """Ask both about these sets: each works while the other does."""
        began = time.monotonic()
        for number in range(first, first + sets):
            acls, asked = questions(self.seed, number)
            for broker in pair:
                broker.begin_put(acls)
            for broker in pair:
                broker.end_put()
            for broker in pair:
                broker.ask(asked)
            for question, ours, kafkas in zip(asked, *(each.outcomes() for each in pair), strict=True):
                self._compare(pair, acls, question, ours, kafkas)
        self.seconds += time.monotonic() - began

    def _compare(
        self,
        pair: Sequence[Broker],
        acls: list[Fields],
        question: Question,
        ours: list[str],
        kafkas: list[str],
    ) -> None:
        row = ROWS[question[1]].__name__
        self.asked[row] += 1
        if ours != kafkas:  # Kafka's controller may have the new ACLs later than its broker
            self.asked_again += 1
            kafkas = pair[1].outcome(*question)
        self.denials += any(code in line for line in kafkas for code in ("=29", "=30", "=31", "=53"))
        if ours == kafkas:
            return
        text = _difference(acls, *question, ours, kafkas)
        if all(each.row != row for each in self.differences):
            print(text, flush=True)  # the first one of each API
        self.differences.append(Difference(row, text))

    def figures(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "pairs": self.asked.total(),
            "with_a_denial": self.denials,
            "asked_again": self.asked_again,
            "differences": self.earlier_differences + len(self.differences),
            "seconds": round(self.seconds, 1),
            "requests": dict(sorted(self.asked.items())),
        }


def _difference(
    acls: list[Fields], source: str, row: int, seed: str, ours: list[str], kafkas: list[str]
) -> str:
    request = ROWS[row](Draw(seed, {}))
    lines = [f"--- {request} from {source}", *(f"    {list(each.values())}" for each in acls)]
    lines += [f"  lockstep: {each}" for each in ours if each not in kafkas]
    lines += [f"  kafka:    {each}" for each in kafkas if each not in ours]
    return "\n".join(lines)


def record(seed: int, sets: int) -> dict[str, Any]:
    """The outcomes of Apache Kafka, as CI reads them: each different one once."""
    outcomes: dict[str, int] = {}
    recorded: dict[str, list[int]] = {}
    for everyone in (False, True):
        lockstep, kafka = brokers(everyone=everyone)
        lockstep.close()
        try:
            indexes = recorded[str(everyone).lower()] = []
            for number in range(sets):
                acls, asked = questions(seed, number)
                kafka.put(acls)
                for each in asked:
                    text = "\n".join(kafka.outcome(*each))
                    indexes.append(outcomes.setdefault(text, len(outcomes)))
        finally:
            kafka.close()
    return {"seed": seed, "sets": sets, "outcomes": list(outcomes), **recorded}


def against_recorded(everyone: bool, sets: int, plant: str = "") -> tuple[int, list[Difference]]:
    """The number of requests to Lockstep alone, and where it differs from the record. Args: plant: as of
    `brokers`."""
    kept = json.loads(RECORDED.read_text())
    outcomes, indexes = kept["outcomes"], kept[str(everyone).lower()]
    differences: list[Difference] = []
    (broker,) = brokers(everyone=everyone, kafka=False, plant=plant)
    try:
        for number in range(sets):
            acls, asked = questions(kept["seed"], number)
            broker.put(acls)
            broker.ask(asked)
            for place, (question, ours) in enumerate(zip(asked, broker.outcomes(), strict=True)):
                kafkas = outcomes[indexes[number * REQUESTS_OF_A_SET + place]].split("\n")
                if [line for line in kafkas if line] != ours:
                    text = _difference(acls, *question, ours, kafkas)
                    differences.append(Difference(ROWS[question[1]].__name__, text))
    finally:
        broker.close()
    return sets * REQUESTS_OF_A_SET, differences


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m tests.campaigns.{NAME}")
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--minutes", type=float, default=FOR_EVER, help="stop after so long; see --resume")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run of this source")
    parser.add_argument("--record", action="store_true", help="write the outcomes that CI reads")
    parser.add_argument("--forget", action="store_true", help="add nothing to docs/evidence")
    options = parser.parse_args(words)
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    if options.record:
        RECORDED.parent.mkdir(exist_ok=True)
        kept = record(seed, options.pairs // REQUESTS_OF_A_SET // 2)
        RECORDED.write_text(json.dumps(kept, separators=(",", ":")) + "\n")
        print(f"{options.pairs} requests, {len(kept['outcomes'])} different outcomes, seed {seed}")
        return 0
    former = interrupted_run() if options.resume else None
    campaign, first = Campaign(seed), 0
    if former is not None:
        campaign.continue_run(former)
        first = former["next_set"]
    open_run = None if options.forget else evidence.OpenRun(NAME, former=former)
    last = options.pairs // REQUESTS_OF_A_SET
    print(f"repeat with: python -m tests.campaigns.{NAME} --pairs {options.pairs} --seed {campaign.seed}")
    return _run(campaign, first, last, open_run, time.monotonic() + options.minutes * 60)


def interrupted_run() -> dict[str, Any] | None:
    """The newest run on record, where it is not done and of this source."""
    runs = evidence.load_runs(NAME)
    if not runs or runs[-1]["done"] or runs[-1]["source"] != evidence.source_digest():
        return None
    return runs[-1]


def _run(
    campaign: Campaign, first: int, last: int, open_run: evidence.OpenRun | None, deadline: float
) -> int:
    while first < last and time.monotonic() < deadline:
        end_of_round = min(last, first - first % SETS_OF_A_ROUND + SETS_OF_A_ROUND)
        pair = brokers(everyone=first // SETS_OF_A_ROUND % 2 == 1)
        try:
            while first < end_of_round and time.monotonic() < deadline:
                sets = min(SETS_OF_A_SAVE, end_of_round - first)
                campaign.ask_both(pair, first, sets)
                first += sets
                figures = campaign.figures()
                rate = figures["pairs"] / campaign.seconds
                print(
                    f"{figures['pairs']} pairs, {rate:.0f}/s, {figures['differences']} differences",
                    flush=True,
                )
                if open_run is not None:
                    open_run.save(figures | {"next_set": first, "done": first >= last})
        finally:
            for each in pair:
                each.close()
    return 1 if campaign.figures()["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
