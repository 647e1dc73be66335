"""`python -m tests.campaigns.group_protocols --sequences 10000 --resume`: consumer groups on two brokers.

Owns: rounds of random sequences of requests about KIP-848 consumer groups (`group_protocol_steps.py`), sent
as raw frames to Apache Kafka 4.4.0 and to Lockstep (`group_protocol_driver.py`), many groups at a time; the
comparison of their answers; what Apache Kafka answered, recorded (`--record`), which CI compares with.
A sequence whose answers differ runs once more with few others and more patience: only a difference that
comes again counts, the rest is told as `equal_at_second_try`.

Both brokers compute assignments at once (`group.consumer.assignment.interval.ms=0`) but for the sequences in
the style "interval", Apache Kafka in the request (`group.consumer.assignor.offload.enable=false`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from compat_tests.kafka_jars import SHORT_LIVED
from compat_tests.raw import RawConnection, raw_connection
from compat_tests.targets import KafkaTarget, LockstepTarget, Target
from tests.campaigns import evidence
from tests.campaigns.group_protocol_driver import Plant, Run
from tests.campaigns.group_protocol_steps import STYLES, TOPICS, RequestSequence, sequence

NAME: Final = "group_protocols"
UNSERVED: Final = frozenset({"classic"})
"""Styles that Lockstep does not serve yet: members of both protocols in one group."""
KNOWN: Final = {
    173: "Kafka evaluates a changed regex at the next heartbeat",
    178: "Kafka evaluates a regex at another member's heartbeat, once those resolved before are gone",
    248: "Kafka takes any older epoch from a static member's successor",
}
"""Recorded sequences in which Lockstep differs, and the reason."""
RECORDED: Final = Path(__file__).parent / "recorded" / f"{NAME}.json"
SETTINGS: Final = {"group.consumer.assignment.interval.ms": "0"}
OF_KAFKA: Final = {"group.consumer.assignor.offload.enable": "false", "group.initial.rebalance.delay.ms": "0"}
ROUND: Final = 1_000
WIDTH: Final = 40
"""Sequences at a time."""
FEW, PATIENT = 6, 4.0
"""The same where a sequence runs once more, and its pace."""
STARTING: Final = (14, 15, 16)
WAIT_SECONDS: Final = 60.0


class Side:
    """One of the two brokers, with the topics that all sequences share."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.topics: dict[str, uuid.UUID] = {}

    def start(self) -> None:
        self.target.start()
        with raw_connection(self.target.bootstrap) as connection:
            for name, partitions in TOPICS.items():
                self.topics[name] = connection.create_topic(name, partitions)
            deadline = time.monotonic() + WAIT_SECONDS
            while not _is_coordinator(connection):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.target.name} does not coordinate groups")
                time.sleep(0.05)

    def close(self) -> None:
        self.target.close()

    async def answers(
        self, asked: RequestSequence, attempt: int, pace: float, plant: Plant | None = None
    ) -> list[str]:
        return await Run(self.target.port, self.topics, asked, attempt, pace, plant).answers()


def _is_coordinator(connection: RawConnection) -> bool:
    connection.call("find_coordinator", 4, key_type=0, coordinator_keys=["first"])
    left = connection.call(
        "consumer_group_heartbeat", 1, group_id="first", member_id="m", member_epoch=-1, topic_partitions=None
    )
    return left["error_code"] not in STARTING


def lockstep_side() -> Side:
    return Side(LockstepTarget(SETTINGS))


def kafka_side() -> Side:
    return Side(KafkaTarget({**SETTINGS, **OF_KAFKA}, heap="512M", jvm=SHORT_LIVED))


def started(*sides: Side) -> tuple[Side, ...]:
    """All of them, or none and the error."""
    try:
        for side in sides:
            side.start()
    except BaseException:
        for side in sides:
            side.close()
        raise
    return sides


async def transcripts(
    sides: Sequence[Side], asked: Iterable[RequestSequence], attempt: int, width: int, pace: float
) -> dict[int, list[list[str]]]:
    """What each side says to each sequence, by the sequence's number."""
    found: dict[int, list[list[str]]] = {}
    places = asyncio.Semaphore(width)

    async def one(each: RequestSequence) -> None:
        async with places:
            found[each.number] = await asyncio.gather(*(side.answers(each, attempt, pace) for side in sides))

    await asyncio.gather(*map(one, asked))
    return found


def first_difference(ours: Sequence[str], kafkas: Sequence[str]) -> int | None:
    """The place of the first unequal answer."""
    return next(
        (place for place, pair in enumerate(zip(ours, kafkas, strict=True)) if len({*pair}) > 1), None
    )


def told(asked: RequestSequence, ours: Sequence[str], kafkas: Sequence[str]) -> str:
    """A difference with what led to it, for people."""
    place = first_difference(ours, kafkas)
    assert place is not None
    lines = [f"--- seed {asked.seed}, sequence {asked.number} ({asked.style}), step {place}"]
    lines += [f"      {asked.steps[each]}\n        {kafkas[each]}" for each in range(place)]
    return "\n".join(
        [*lines, f"    * {asked.steps[place]}", f"  lockstep: {ours[place]}", f"  kafka:    {kafkas[place]}"]
    )


class Campaign:
    """The counts of a run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.sequences: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.second_tries = 0
        self.differences: list[str] = []

    def round(self, sides: Sequence[Side], numbers: Iterable[int]) -> None:
        """Ask both sides, Lockstep first, about the sequences of these numbers."""
        drawn = (sequence(self.seed, number) for number in numbers)
        asked = {each.number: each for each in drawn if each.style not in UNSERVED}
        found = asyncio.run(transcripts(sides, asked.values(), 0, WIDTH, 1.0))
        unequal = [asked[number] for number, (ours, kafkas) in sorted(found.items()) if ours != kafkas]
        again = asyncio.run(transcripts(sides, unequal, 1, FEW, PATIENT))
        self.second_tries += sum(ours == kafkas for ours, kafkas in again.values())
        for number, (ours, kafkas) in sorted(again.items()):
            if ours != kafkas:
                self.differences.append(told(asked[number], ours, kafkas))
        for number, (_, kafkas) in found.items():
            self.sequences[asked[number].style] += 1
            for step, answer in zip(asked[number].steps, kafkas, strict=True):
                self.steps[step.do] += 1
                if step.do == "beat":
                    self.codes[answer.partition(" ")[0]] += 1

    def figures(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "sequences": sum(self.sequences.values()),
            "styles": {style: self.sequences[style] for style in STYLES},
            "steps": dict(sorted(self.steps.items())),
            "answers_to_heartbeats": dict(sorted(self.codes.items())),
            "equal_at_second_try": self.second_tries,
            "differences": len(self.differences),
        }


# --- recorded answers of Apache Kafka -----------------------------------------------------------------


def record(seed: int, count: int) -> dict[str, Any]:
    """Apache Kafka's answers to the first sequences that are quick: those that it gives twice."""
    asked = [each for number in range(count) if _is_quick(each := sequence(seed, number))]
    (kafka,) = started(kafka_side())
    try:
        first, second = (
            asyncio.run(transcripts([kafka], asked, attempt, FEW, pace))
            for attempt, pace in enumerate((2.0, 3.0))
        )
    finally:
        kafka.close()
    texts: dict[str, int] = {}
    kept = {number: answers for number, (answers,) in sorted(first.items()) if [answers] == second[number]}
    print(f"{len(kept)} of {len(asked)} are answered alike twice")
    return {
        "seed": seed,
        "sequences": {
            number: [texts.setdefault(text, len(texts)) for text in answers]
            for number, answers in kept.items()
        },
        "answers": list(texts),
    }


def _is_quick(asked: RequestSequence) -> bool:
    return all(step.words.get("seconds", 0) < 5 for step in asked.steps)


def recorded() -> tuple[list[RequestSequence], dict[int, list[str]]]:
    """The recorded sequences, and Apache Kafka's answers by number."""
    kept = json.loads(RECORDED.read_text())
    texts = kept["answers"]
    answers = {int(number): [texts[each] for each in places] for number, places in kept["sequences"].items()}
    asked = [sequence(kept["seed"], number) for number in answers]
    return [each for each in asked if each.style not in UNSERVED and each.number not in KNOWN], answers


def against_recorded(side: Side, asked: Sequence[RequestSequence], kafkas: dict[int, list[str]]) -> list[str]:
    """Where Lockstep alone differs from the record, twice."""
    first = asyncio.run(transcripts([side], asked, 0, WIDTH, 1.0))
    unequal = [each for each in asked if first[each.number] != [kafkas[each.number]]]
    again = asyncio.run(transcripts([side], unequal, 1, FEW, PATIENT))
    return [
        told(each, ours, kafkas[each.number])
        for each in unequal
        for ours in again[each.number]
        if ours != kafkas[each.number]
    ]


# --- the command -----------------------------------------------------------------


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m tests.campaigns.{NAME}")
    parser.add_argument("--sequences", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--record", action="store_true", help="write the answers that CI reads")
    parser.add_argument("--forget", action="store_true", help="add nothing to docs/evidence")
    options = parser.parse_args(words)
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    if options.record:
        kept = record(seed, options.sequences)
        RECORDED.write_text(json.dumps(kept, separators=(",", ":")) + "\n")
        print(f"{len(kept['answers'])} different answers, seed {seed}")
        return 0
    return _run(seed, options.sequences, options.resume, options.forget)


def _run(seed: int, count: int, resume: bool, forget: bool) -> int:
    first = 0
    runs = evidence.load_runs(NAME)
    if resume and runs and not runs[-1].get("done", True):
        seed, first = runs[-1]["seed"], runs[-1]["next"]
    campaign = Campaign(seed)
    print(f"repeat with: python -m tests.campaigns.{NAME} --sequences {count} --seed {seed}", flush=True)
    open_run = None if forget else evidence.OpenRun(NAME)
    last = first + count
    while first < last:
        numbers = range(first, min(first + ROUND, last))
        began, known = time.monotonic(), len(campaign.differences)
        sides = started(lockstep_side(), kafka_side())
        try:
            campaign.round(sides, numbers)
        finally:
            for each in sides:
                each.close()
        first = numbers.stop
        figures = campaign.figures()
        print(f"{figures['sequences']} sequences, {figures['differences']} differences", flush=True)
        print(f"  {time.monotonic() - began:.0f} s, {figures['equal_at_second_try']} equal at a second try")
        for text in campaign.differences[known:]:
            print(text, flush=True)
        if open_run is not None:
            open_run.save(figures | {"first": last - count, "next": first, "done": first >= last})
    return 1 if campaign.differences else 0


if __name__ == "__main__":
    sys.exit(main())
