"""An application for tests: numbers by key, changed under write locks; and a topic that has locks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

from lockstep.kafka_client.client import Client
from lockstep.transactions import Application, Committed, Draft, Refusal, Transaction

LOCKED = {"lockstep.locks": "true", "lockstep.group": "1"}


async def locked_topic(bootstrap: str, partitions: int = 1) -> str:
    """A new topic whose partitions are in one log group."""
    name = f"t-{uuid4().hex[:12]}"
    async with Client(bootstrap) as client:
        await client.create_topic(name, partitions=partitions, configs=LOCKED)
    return name


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it, as long as the test may take."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


class Counters(Application):
    """What each key counts, by partition, and what it was made from."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, bytes | None], int] = {}
        self.marks: dict[int, int] = {}
        self.applied: list[Committed] = []
        self.errors: list[tuple[int, int, BaseException]] = []

    def high_water_mark(self, partition: int) -> int:
        return self.marks.get(partition, -1)

    def apply(self, committed: Committed) -> None:
        assert committed.previous == self.marks.get(committed.partition, -1) < committed.offset
        for record in committed.records:
            assert record.value is not None
            self.counts[committed.partition, record.key] = int(record.value)
        self.marks[committed.partition] = committed.offset
        self.applied.append(committed)

    def on_exception(self, partition: int, offset: int, error: BaseException) -> None:
        self.errors.append((partition, offset, error))


class Increment(Transaction):
    """Adds one to a key, and remembers what it was told."""

    def __init__(self, counters: Counters, key: bytes = b"a", partition: int = 0) -> None:
        self.counters = counters
        self.key = key
        self.where = partition
        self.told: list[object] = []

    def partition(self, partitions: int) -> int:
        return self.where

    def execute(self, draft: Draft) -> bool | None:
        draft.write_lock(self.key)
        draft.add(b"%d" % (self.counters.counts.get((self.where, self.key), 0) + 1), key=self.key)
        return None

    def on_completion(self, is_appended: bool) -> None:
        self.told.append(("completed", is_appended))

    def on_application(self, committed: Committed) -> None:
        self.told.append(("applied", committed.offset))

    def on_refusal(self, refusal: Refusal) -> None:
        self.told.append(refusal)

    def on_exception(self, error: BaseException) -> None:
        self.told.append(error)

    def on_expiration(self, is_known: bool) -> None:
        self.told.append(("expired", is_known))

    @property
    def refusals(self) -> list[Refusal]:
        return [each for each in self.told if isinstance(each, Refusal)]
