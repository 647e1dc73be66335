"""`python -m tests.campaigns.smoke_client BOOTSTRAP TOPIC NUMBER COUNT SEED REPORT`: one client process.

Owns: the application (how many records each key has, and a checksum over all that the feed brought) and the
random transactions on it. Says "finished" on its standard output when it knows what became of each; once told
to on its standard input it reads up to the end, writes its report and ends.

`--plant skip`: the application forgets one record. `--plant twice`: one transaction is done again under its
old name. `--plant lie`: one that was appended is reported expired. The judge must see each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lockstep.transactions import (
    Appended,
    Application,
    Committed,
    Draft,
    Expired,
    NotAppended,
    NotApplied,
    Refusal,
    RefusedForGood,
    Transaction,
    TransactionClient,
    lock,
)
from tests.campaigns import smoke_judge
from tests.campaigns.smoke_judge import APPENDED, Checksum, Value

OUTSTANDING: Final = 48
HOT, ALL = 200, 1_000_000
"""Keys of a partition that are used often, and all there are: more than the broker knows exactly."""
SHORT_S: Final = 0.03
EXPECTING_S: Final = 1.0
"""With others about, the next offset is a moving target."""
FAR: Final = 1_000_000_000
KINDS: Final = {
    "write": 36,
    "read": 20,
    "elsewhere": 14,
    "two": 12,
    "append": 10,
    "none": 6,
    "expected": 0.5,
    "far": 0.5,
    "nothing": 1,
}
SHORT_SHARE: Final = 0.01
REPORT_EVERY: Final = 100
TELLING_TURNS: Final = 500
"""Of 10 ms: feeds tell of what is applied a moment after it is."""
PLANTS: Final = ("skip", "twice", "lie")


class Counts(Application):
    """How many records each key has, by partition."""

    def __init__(self, skipped: int = -1) -> None:
        self.counts: Counter[tuple[int, bytes | None]] = Counter()
        self.checksums: dict[int, Checksum] = {}
        self.errors: list[str] = []
        self._marks: dict[int, int] = {}
        self._until_skipped = skipped

    def high_water_mark(self, partition: int) -> int:
        return self._marks.get(partition, -1)

    def apply(self, committed: Committed) -> None:
        partition, records = committed.partition, committed.records
        if committed.previous != self.high_water_mark(partition):
            raise ValueError(f"{committed} follows {committed.previous}, {self._marks} is applied")
        request = None if committed.request is None else str(committed.request).encode()
        checksum = self.checksums.setdefault(partition, Checksum())
        for offset, record in enumerate(records, committed.offset - len(records) + 1):
            self._until_skipped -= 1
            if self._until_skipped != 0:
                checksum.add(offset, record.key, record.value, request)
            self.counts[partition, record.key] += 1
        self._marks[partition] = committed.offset

    def on_exception(self, partition: int, offset: int, error: BaseException) -> None:
        self.errors.append(f"partition {partition}, offset {offset}: {error!r}")


class Drawn(Transaction):
    """One random transaction; what it is about is drawn once, what it writes is computed from the counts."""

    def __init__(self, rng: random.Random, name: str, counts: Counts, partitions: int) -> None:
        self.name = name
        self.counts = counts
        (self.kind,) = rng.choices(list(KINDS), list(KINDS.values()))
        if partitions == 1 and self.kind in ("elsewhere", "two"):
            self.kind = "write"
        self.places = rng.sample(range(partitions), min(2, partitions))
        self.keys = [_key(rng) for _ in range(3)]
        self.has_several = rng.random() < 0.2
        self.padding = "x" * rng.randrange(100)
        self.timeout_s = SHORT_S if rng.random() < SHORT_SHARE else None
        if self.kind == "expected":
            self.timeout_s = EXPECTING_S
        self.refusals: Counter[str] = Counter()
        self.told = 0

    def partition(self, partitions: int) -> int:
        return self.places[0]

    def execute(self, draft: Draft) -> bool | None:
        if self.kind == "nothing":
            return False
        here, there = self.places[0], self.places[-1]
        own, second, other = self.keys
        saw: list[tuple[int, bytes]] = []
        if self.kind == "append":
            draft.append_lock(own)
        elif self.kind != "none":
            draft.write_lock(own)
            saw.append((here, own))
        writes = [(here, own if self.kind != "none" else b"free")]
        if self.has_several and self.kind not in ("append", "none"):
            draft.write_lock(second)
            saw.append((here, second))
            writes.append((here, second))
        if self.kind == "read":
            draft.read_lock(other)
            saw.append((here, other))
        elif self.kind == "elsewhere":
            draft.read_lock(other, second, partition=there)
            saw += [(there, other), (there, second)]
        elif self.kind == "two":
            draft.write_lock(other, partition=there)
            saw.append((there, other))
            writes.append((there, other))
        elif self.kind == "expected":
            draft.expect_offset(self.counts.high_water_mark(here) + 1)
        elif self.kind == "far":
            draft.expect_offset(FAR)
        value = Value(
            self.name,
            tuple(sorted({place for place, _ in writes})),
            tuple((place, key.decode(), self.counts.counts[place, key]) for place, key in saw),
        ).encode(self.padding)
        for place, key in writes:
            draft.add(value, key=key, partition=place)
        return None

    def on_refusal(self, refusal: Refusal) -> None:
        self.refusals[refusal.reason] += 1

    def on_application(self, committed: Committed) -> None:
        self.told += 1


def _key(rng: random.Random) -> bytes:
    return lock("hot", rng.randrange(HOT)) if rng.random() < 0.6 else lock("key", rng.randrange(ALL))


class Smoke:
    """One client's transactions, and what became of them."""

    def __init__(self, number: int, seed: int, plant: str | None = None) -> None:
        self._number = number
        self._rng = random.Random(f"{seed}-{number}")
        self._plant = plant
        self.counts = Counts(skipped=10 if plant == "skip" else -1)
        self.executed = 0
        self._done: list[tuple[Drawn, str, dict[int, int]]] = []
        self._refusals: Counter[str] = Counter()

    async def execute(self, client: TransactionClient, count: int) -> None:
        """So many, many at a time."""
        print("done 0", flush=True)
        waiting: set[asyncio.Task[None]] = set()
        room = asyncio.Semaphore(OUTSTANDING)

        async def one(drawn: Drawn) -> None:
            try:
                became, offsets = await became_of(client, drawn)
            finally:
                room.release()
            self._done.append((drawn, became, offsets))
            self._refusals += drawn.refusals
            if len(self._done) % REPORT_EVERY == 0:
                print(f"done {len(self._done)}", flush=True)

        for number in range(count):
            await room.acquire()
            again = self._plant == "twice" and number == count // 2
            name = f"{self._number}/{number - 1 if again else number}"
            drawn = Drawn(self._rng, name, self.counts, client.partition_count)
            if self._plant and number in (count // 2 - 1, count // 2):
                drawn.kind, drawn.timeout_s = "write", None
            task = asyncio.create_task(one(drawn))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)
        print(f"done {len(self._done)}", flush=True)

    async def report(self, client: TransactionClient) -> dict[str, Any]:
        """After reading to the end."""
        await client.caught_up()
        for _ in range(TELLING_TURNS):
            if all(each.told >= len(at) for each, became, at in self._done if became == APPENDED):
                break
            await asyncio.sleep(0.01)
        outcomes = [[each.name, became, offsets, each.told] for each, became, offsets in self._done]
        if self._plant == "twice":  # under the old name it was never asked for
            outcomes = list({outcome[0]: outcome for outcome in outcomes}.values())
        elif self._plant == "lie":
            told = next(each for each in outcomes if each[1] == APPENDED)
            told[1] = smoke_judge.EXPIRED
        return {
            "reader": f"client {self._number}",
            "ends": {number: client.high_water_mark(number) + 1 for number in client.partitions},
            "checksums": {number: str(found) for number, found in self.counts.checksums.items()},
            "outcomes": outcomes,
            "refusals": self._refusals,
            "kinds": Counter(each.kind for each, became, _ in self._done if became == APPENDED),
            "errors": self.counts.errors,
        }


async def became_of(client: TransactionClient, drawn: Drawn) -> tuple[str, dict[int, int]]:
    """What the client says of it, and where it is."""
    try:
        found: Appended | None = await client.execute(drawn, timeout_s=drawn.timeout_s)
    except RefusedForGood:
        return smoke_judge.REFUSED, {}
    except NotAppended:
        return smoke_judge.NOT_APPENDED, {}
    except NotApplied as error:
        return smoke_judge.NOT_APPLIED, dict(error.offsets)
    except Expired as error:
        return smoke_judge.EXPIRED if error.is_known else smoke_judge.UNKNOWN, {}
    if found is None:
        return smoke_judge.NOTHING, {}
    return APPENDED, dict(found.offsets)


async def run(arguments: argparse.Namespace) -> None:
    smoke = Smoke(arguments.number, arguments.seed, arguments.plant)
    async with TransactionClient(
        arguments.bootstrap, arguments.topic, smoke.counts, max_outstanding=OUTSTANDING
    ) as client:
        await smoke.execute(client, arguments.count)
        print("finished", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        arguments.report.write_text(json.dumps(await smoke.report(client)))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.smoke_client", description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("number", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("report", type=Path)
    parser.add_argument("--plant", choices=PLANTS)
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(run(parser.parse_args(words)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
