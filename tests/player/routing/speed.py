"""How many records a second the routers take: `python -m tests.player.routing.speed`, a few seconds.

Batches of 100 records of 1 KB, keys of 12 bytes, four targets; process time on one core. Also what it costs
to compress what is sent, and what that saves: why parts are not compressed
(`player/routing/record_router.py`)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from lockstep.player.core.messages import Entry
from lockstep.player.core.router import Parts
from lockstep.player.routing.broadcast import BroadcastRouter
from lockstep.player.routing.header import TARGETS_HEADER, HeaderSelector
from lockstep.player.routing.key_hash import KeyHashSelector
from lockstep.player.routing.record_router import RecordRouter
from lockstep.protocol.records.compression import Codec, compress
from lockstep.protocol.records.record import BatchBuilder, Record

NAMES = ("a", "b", "c", "d")
RECORDS = 100
VALUE_BYTES = 1000
SECONDS = 1.0


def batches(count: int, codec: Codec = Codec.NONE, keys: int = 0) -> list[Entry]:
    """`keys`: so many different ones; 0: each is another."""
    rng = random.Random(1)
    words = [rng.randbytes(8) for _ in range(500)]
    made = []
    for number in range(count):
        builder = BatchBuilder(codec)
        for at in range(RECORDS):
            key = b"%012d" % (rng.randrange(keys) if keys else number * RECORDS + at)
            value = b"".join(rng.choices(words, k=VALUE_BYTES // 8))
            headers = [(TARGETS_HEADER, rng.choice(NAMES).encode())]
            builder.append(value, key, timestamp_ms=1_700_000_000_000 + at, headers=headers)
        made.append(Entry(number * RECORDS + RECORDS - 1, bytes(builder.build(number * RECORDS))))
    return made


def rate(route: Callable[[Entry], Parts], entries: list[Entry]) -> float:
    """Records a second."""
    begin, done = time.process_time(), 0
    while (taken := time.process_time() - begin) < SECONDS:
        for entry in entries:
            route(entry)
        done += len(entries) * RECORDS
    return done / taken


def by_function(record: Record) -> tuple[str, ...]:
    return (NAMES[record.offset & 3],)


def main() -> None:
    entries = batches(50)
    routes: dict[str, Callable[[Entry], Parts]] = {
        "everything to all": BroadcastRouter(NAMES),
        "by key, new ones": RecordRouter(KeyHashSelector(NAMES, ())),
        "by header": RecordRouter(HeaderSelector()),
        "by function": RecordRouter(by_function),
        "by header, all to one": RecordRouter(HeaderSelector(("a",), "no-such-header")),
    }
    for name, route in routes.items():
        print(f"{name:24} {rate(route, entries):12,.0f} records/s")
    known = RecordRouter(KeyHashSelector(NAMES, ()))
    print(f"{'by key, 1,000 of them':24} {rate(known, batches(50, keys=1000)):12,.0f} records/s")
    for codec in list(Codec)[1:]:
        print(f"{'by key, ' + codec.name + ' in':24} {rate(known, batches(20, codec)):12,.0f} records/s")
    for count in (1, 4, 10):
        builder = BatchBuilder()
        for at in range(count):
            builder.append(bytes(VALUE_BYTES), b"%012d" % at, timestamp_ms=0)
        one = Entry(count - 1, bytes(builder.build()))
        each = RecordRouter(lambda record: (str(record.offset),))
        begin = time.process_time()
        for _ in range(2000):
            each(one)
        us = (time.process_time() - begin) / 2000 * 1e6
        print(f"a batch of {count:2} records, a target each: {us:6.1f} us")
    body = entries[0].payload
    assert isinstance(body, bytes)
    quarter = body[: len(body) // 4]
    for codec in list(Codec)[1:]:
        begin = time.process_time()
        for _ in range(50):
            size = len(compress(codec, quarter))
        us = (time.process_time() - begin) / 50 * 1e6
        print(
            f"{codec.name:6} a part of {len(quarter):,} bytes: {us:8,.0f} us, {size / len(quarter):.2f} of it"
        )


if __name__ == "__main__":
    main()
