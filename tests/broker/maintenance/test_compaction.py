"""Compaction as clients see it: the last value of each key, refusals, lags, retention beside it, offsets."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.broker.groups.group_records import CommittedOffset, offset_record
from lockstep.broker.maintenance.compaction import (
    BUSY_PAUSE,
    IDLE_PAUSE,
    MAX_WARNINGS,
    SLICE_SECONDS,
    Compaction,
    IoThrottle,
    LogToClean,
    is_due,
)
from lockstep.broker.maintenance.segment_roll import SMALL_FILE_MS
from lockstep.broker.server import Broker
from lockstep.broker.settings.topic_config import topic_config
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lockstep.protocol.records.batch import MalformedBatch, crc_of, iter_headers
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder, Record
from lockstep.storage import compaction_rules
from lockstep.storage.compaction_pass import Cleaned
from lockstep.storage.types import StorageFull
from tests.broker.conftest import StartBroker
from tests.broker.controller.api.configs import SET, TOPIC, alter
from tests.broker.wire import Client, batch, records_of

TINY = {
    "lockstep_tail_cache_bytes": "8192",
    "log_cleaner_backoff_ms": "100000000",
    "log_cleaner_min_cleanable_ratio": "0.01",
}


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    return await start_broker(**TINY)


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    connected = await Client.connect(broker.port)
    yield connected
    await connected.close()


def keyed(
    pairs: list[tuple[bytes | None, bytes | None]], timestamp_ms: int = 5, codec: Codec = Codec.NONE
) -> bytes:
    builder = BatchBuilder(codec)
    for key, value in pairs:
        builder.append(value, key, timestamp_ms=timestamp_ms)
    return builder.build()


_fillers = itertools.count()


async def filler(client: Client, count: int = 40) -> None:
    """So much that what came before lies below the older of two checkpoints."""
    topic = f"filler-{next(_fillers)}"
    await client.create(topic, retention_ms="-1")
    for _ in range(count):
        produced = await client.produce(topic, batch(b"x" * 100_000))
        assert produced.error_code == 0
        await asyncio.sleep(0.01)


async def read(client: Client, topic: str, isolation: int = 0) -> list[Record]:
    """Everything, batch after batch, as a consumer does."""
    found: list[Record] = []
    offset = 0
    while True:
        data = await client.fetch(topic, offset, isolation_level=isolation)
        assert data.error_code == 0
        raw = bytes(data.records or b"")  # type: ignore[arg-type]
        headers = [header for _, header in iter_headers(raw)]
        if not headers:
            assert offset == data.high_watermark
            return found
        found += [record for record in records_of(data) if record.offset >= offset]
        offset = headers[-1].next_offset


def last_values(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


async def test_the_last_value_of_each_key_stays(start_broker: StartBroker) -> None:
    broker = await start_broker(**TINY)
    client = await Client.connect(broker.port)
    await client.create("c", cleanup_policy="compact", delete_retention_ms="0")
    rng = random.Random(4)
    expected: dict[bytes | None, bytes | None] = {}
    for turn in range(3):
        for _ in range(60):
            pairs: list[tuple[bytes | None, bytes | None]] = [
                (b"%d" % rng.randrange(30), rng.choice([None, rng.randbytes(200), b"v" * 500]))
                for _ in range(rng.randrange(1, 12))
            ]
            assert (await client.produce("c", keyed(pairs, 5, rng.choice(list(Codec))))).error_code == 0
            expected.update(pairs)
        await filler(client)
        writing = asyncio.create_task(client_writes(broker.port, expected))
        saved = await broker.compact()
        await writing
        records = await read(client, "c")
        assert {k: v for k, v in last_values(records).items() if v is not None} == {
            k: v for k, v in expected.items() if v is not None
        }
        assert saved > 10_000 and len(records) < 130 + 40 * turn
        await broker.compact()
    earliest = await offset_at(client, "c", -2)
    assert earliest == 0, "compaction moves no log start"
    before = [record.offset for record in await read(client, "c")]
    await client.close()
    await broker.stop()
    broker = await start_broker(**TINY)
    client = await Client.connect(broker.port)
    assert [record.offset for record in await read(client, "c")] == before
    assert await offset_at(client, "c", -2) == 0
    await client.close()


async def client_writes(port: int, expected: dict[bytes | None, bytes | None]) -> None:
    client = await Client.connect(port)
    for at in range(30):
        pairs: list[tuple[bytes | None, bytes | None]] = [(b"%d" % (at % 7), b"beside %d" % at)]
        assert (await client.produce("c", keyed(pairs))).error_code == 0
        expected.update(pairs)
    await client.close()


async def offset_at(client: Client, topic: str, timestamp: int) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    answer = (await client.call(request, 7)).topics[0].partitions[0]
    assert answer.error_code == 0
    return int(answer.offset)


async def test_times_are_found_in_what_is_left(broker: Broker, client: Client) -> None:
    await client.create("c", cleanup_policy="compact")
    for at in range(40):
        pairs: list[tuple[bytes | None, bytes | None]] = [
            (b"always", b"v" * 300),
            (b"once %d" % at, b"w" * 300) if at % 10 == 0 else (b"always", b"x" * 300),
        ]
        await client.produce("c", keyed(pairs, 1000 + at))
    await filler(client)
    assert await broker.compact() > 10_000
    found = {record.offset: record.timestamp for record in await read(client, "c")}
    for time_ms in range(999, 1045):
        expected = min((offset for offset, stamp in found.items() if stamp >= time_ms), default=-1)
        assert await offset_at(client, "c", time_ms) == expected


async def test_records_without_a_key_are_refused(broker: Broker, client: Client) -> None:
    await client.create("c", cleanup_policy="compact,delete")
    await client.create("d")
    for codec in Codec:
        for pairs in ([(None, b"v")], [(b"k", b"v"), (None, b"v")]):
            refused = await client.produce("c", keyed(list(pairs), codec=codec))
            assert refused.error_code == ErrorCode.INVALID_RECORD and refused.error_message
            assert (await client.produce("d", keyed(list(pairs), codec=codec))).error_code == 0
        taken = await client.produce("c", keyed([(b"", b"v"), (b"k", None)], codec=codec))
        assert taken.error_code == 0
    broken = bytearray(keyed([(b"k", b"v")], codec=Codec.ZSTD))
    broken[-3] ^= 9
    broken[17:21] = crc(broken)
    assert (await client.produce("c", bytes(broken))).error_code == ErrorCode.INVALID_RECORD


def crc(data: bytearray) -> bytes:
    return crc_of(data, 0, len(data)).to_bytes(4, "big")


async def test_what_is_younger_than_the_lag_stays(broker: Broker, client: Client) -> None:
    await client.create("c", cleanup_policy="compact", min_compaction_lag_ms="3600000")
    now_ms = int(time.time() * 1000)
    for at in range(60):
        await client.produce("c", keyed([(b"k", b"v" * 1000)], now_ms - (7_200_000 if at < 30 else 0)))
    await filler(client)
    assert await broker.compact() > 10_000
    assert [record.offset for record in await read(client, "c")] == list(range(29, 60))


async def test_a_record_of_the_future_that_delays_compaction_is_logged_once(
    broker: Broker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """KAFKA-18929 is about retention; min.compaction.lag.ms is its sibling."""
    await client.create(
        "c",
        cleanup_policy="compact",
        min_compaction_lag_ms="1000",
        message_timestamp_after_max_ms=str(10**12),
    )
    ahead_ms = int(time.time() * 1000) + 5_000_000
    for at in range(60):
        await client.produce("c", keyed([(b"k", b"v" * 1000)], ahead_ms if at == 20 else 5))
    await filler(client)
    for _ in range(3):
        await broker.compact()
    assert [record.offset for record in await read(client, "c")] == list(range(19, 60))
    told = [each.getMessage() for each in caplog.records if "is blocked at" in each.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("c-0: compaction is blocked at offset 20 by a record with a timestamp ")


async def test_a_ratio_and_an_age_make_a_partition_due(broker: Broker, client: Client) -> None:
    lag = str(3_600_000)
    await client.create("c", cleanup_policy="compact", min_cleanable_dirty_ratio="1")
    await client.create(
        "old", cleanup_policy="compact", min_cleanable_dirty_ratio="1", max_compaction_lag_ms=lag
    )
    for _ in range(30):
        for topic in ("c", "old"):
            await client.produce(topic, keyed([(b"k", b"v" * 1000)], 5))
    await filler(client)
    assert await broker.compact() > 10_000
    assert len(await read(client, "c")) == 30
    assert [record.offset for record in await read(client, "old")] == [29]


def compaction_of(broker: Broker) -> Compaction:
    assert broker.assembly is not None
    return broker.assembly.compaction


def files(broker: Broker) -> int:
    return len(broker.groups[1].log.segments())


async def test_the_age_promised_holds_for_a_topic_alone_in_its_log(broker: Broker, client: Client) -> None:
    """Nothing else fills log files: the one that is written to is sealed."""
    ratio, lag = "1", "60000"
    await client.create(
        "c",
        cleanup_policy="compact",
        delete_retention_ms="0",
        min_cleanable_dirty_ratio=ratio,
        max_compaction_lag_ms=lag,
    )
    now_ms = int(time.time() * 1000)
    young = [(b"%d" % key, b"young") for key in range(10)]
    await client.produce("c", keyed(list(young), now_ms))
    assert await broker.compact() == 0 and files(broker) == 0, "it is not due yet"
    await client.create(
        "d", cleanup_policy="compact", min_cleanable_dirty_ratio=ratio, max_compaction_lag_ms=lag
    )
    for _ in range(3):
        await client.produce("d", keyed([(b"%d" % key, b"v" * 1000) for key in range(10)], now_ms - 61_000))
    await client.produce("d", keyed([(b"%d" % key, None) for key in range(10)], now_ms - 61_000))
    assert await broker.compact() > 900_000, "what the sealed file never used is given back"
    assert files(broker) == 1
    assert [(r.key, r.value) for r in await read(client, "d")] == [(b"%d" % key, None) for key in range(10)]
    assert [(r.key, r.value) for r in await read(client, "c")] == young
    for _ in range(3):
        assert await broker.compact() == 0 and files(broker) == 1


@pytest.mark.parametrize(
    ("configuration", "age_ms", "sealed"),
    [
        ({"segment_ms": "60000"}, 61_000, True),
        ({"segment_ms": "60000"}, 50_000, False),
        ({"segment_ms": "60000", "min_compaction_lag_ms": "70000"}, 61_000, False),
        ({"segment_ms": "60000", "min_cleanable_dirty_ratio": "1"}, 61_000, False),
        ({"segment_bytes": str(1 << 20)}, 0, True),
        ({"segment_bytes": str(2 << 20)}, 0, False),
        ({}, 6 * 86_400_000, False),
        ({}, 8 * 86_400_000, True),
    ],
)
async def test_when_a_file_is_sealed(
    start_broker: StartBroker, configuration: dict[str, Any], age_ms: int, sealed: bool
) -> None:
    broker = await start_broker(**TINY, lockstep_segment_bytes=str(8 << 20))
    client = await Client.connect(broker.port)
    await client.create("c", cleanup_policy="compact", **configuration)
    for _ in range(7):
        records = keyed([(b"k", b"v" * 170_000)], int(time.time() * 1000) - age_ms)
        assert (await client.produce("c", records)).error_code == 0
    await broker.compact()
    assert (files(broker), len(await read(client, "c"))) == ((1, 1) if sealed else (0, 7))
    await client.close()


async def test_files_are_not_sealed_more_often_than_a_topic_configures(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(**{**TINY, "log_cleaner_backoff_ms": "15000"})
    monkeypatch.setattr(broker.groups[1].log, "has_small_neighbours", lambda: False)  # each file is counted
    client = await Client.connect(broker.port)
    moment = int(time.time() * 1000)
    await client.create("c", cleanup_policy="compact", segment_ms="60000")
    await client.create("often", cleanup_policy="compact", max_compaction_lag_ms="1")
    steps = ((0, 1), (15_000, 1), (59_999, 1), (60_000, 2), (119_999, 2), (120_000, 3))
    for topic, later_ms, expected in (
        *(("c", *step) for step in steps),
        ("often", 134_999, 3),
        ("often", 135_000, 4),
    ):
        await client.produce(topic, keyed([(b"%d" % later_ms, b"v")], moment - 100_000))
        monkeypatch.setattr(compaction_of(broker), "_clock_ms", lambda: moment + later_ms)  # noqa: B023
        await broker.compact()
        assert files(broker) == expected, later_ms
    monkeypatch.setattr("lockstep.broker.maintenance.segment_roll.MAX_SMALL", 2)
    kept_off_ms = 2 * SMALL_FILE_MS
    for later_ms, expected in ((135_000 + kept_off_ms - 1, 4), (135_000 + kept_off_ms, 5)):
        await client.produce("often", keyed([(b"%d" % later_ms, b"v")], moment - 100_000))
        monkeypatch.setattr(compaction_of(broker), "_clock_ms", lambda: moment + later_ms)  # noqa: B023
        await broker.compact()
        assert files(broker) == expected, "two small files too many keep the next one off"
    await client.close()


async def test_a_pass_that_changes_nothing_is_not_repeated(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lockstep.compaction")
    await client.create("c", cleanup_policy="compact", segment_ms="60000")
    for _ in range(3):
        await client.produce("c", keyed([(b"%d" % at, b"v") for at in range(9)], 5))
    for _ in range(3):
        await broker.compact()
    assert caplog.text.count("cleaned") == 1 and len(await read(client, "c")) == 9
    passes = []
    real = broker.groups[1].clean

    async def clean(wanted: Any, *rest: Any) -> Any:
        passes.append(wanted)
        return await real([each._replace(end_offset=each.dirty_offset) for each in wanted], *rest)

    monkeypatch.setattr(broker.groups[1], "clean", clean)
    broker.groups[1].compaction_progress.forget()
    for _ in range(3):
        await broker.compact()
    assert len(passes) == 1 and caplog.text.count("cleaned") == 1


@pytest.mark.parametrize(
    ("dirty", "end", "ratio", "oldest_ms", "due"),
    [
        (0, 0, 0.9, 0, False),
        (0, 9, 0.5, 1000, False),
        (0, 9, 0.51, 1000, True),
        (0, 9, 0.1, 499, True),
        (0, 9, 0.1, 500, False),
    ],
)
def test_due(broker: Broker, dirty: int, end: int, ratio: float, oldest_ms: int, due: bool) -> None:
    texts = {"cleanup.policy": "compact", "max.compaction.lag.ms": "500", "min.cleanable.dirty.ratio": "0.5"}
    topic: Any = SimpleNamespace(config=topic_config(texts, broker.assembly.cluster.settings))
    dirt = LogToClean(SimpleNamespace(topic=topic), dirty, end, ratio, oldest_ms)  # type: ignore[arg-type]
    assert is_due(dirt, 1000) is due


async def test_retention_and_compaction_of_one_topic(broker: Broker, client: Client) -> None:
    await client.create("c", cleanup_policy="compact,delete", retention_ms="3600000")
    now_ms = int(time.time() * 1000)
    for at in range(60):
        time_ms = now_ms - (7_200_000 if at < 30 else 0)
        await client.produce("c", keyed([(b"%d" % (at % 40), b"v" * 1000)], time_ms))
    await filler(client)
    assert await broker.enforce_retention() == 1
    assert await offset_at(client, "c", -2) == 30
    assert await broker.compact() > 0
    data = await client.fetch("c", 29)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    data = await client.fetch("c", 30)
    offsets = [record.offset for record in records_of(data)]
    assert offsets == list(range(30, 60)), "keys 30 to 39 and then 0 to 19: each of them once since"


async def test_old_commits_of_offsets_go(start_broker: StartBroker) -> None:
    broker = await start_broker(**TINY)
    client = await Client.connect(broker.port)
    await client.create("t")
    await broker.assembly.consumer_groups.create_topic(broker.assembly.forwarder)
    ((store, _),) = broker.assembly.consumer_groups.active_shards()
    told: list[ErrorCode] = []
    count = 0
    for _ in range(60):
        for place in range(40):
            count += 1
            record = offset_record(
                "g", "t", place, CommittedOffset(count, -1, "m" * 40, int(time.time() * 1e3))
            )
            store.append("g", [record], told.append)
        await store.group.committed()
    await filler(client)
    group = broker.groups[1]
    partition = store.partition("g")
    assert partition is not None
    before = group.log.partition_bytes(partition.local_id, 0)
    assert await broker.compact() > 0.8 * before
    assert set(told) == {ErrorCode.NONE} and partition.log_start_offset == 0
    committed = {place[1]: each.offset for place, each in store.state.offsets("g").items()}
    assert committed == {place: 59 * 40 + place + 1 for place in range(40)}
    await client.close()
    await broker.stop()
    again = await start_broker(**TINY)
    ((store, _),) = again.assembly.consumer_groups.active_shards()
    assert {p[1]: each.offset for p, each in store.state.offsets("g").items()} == committed


async def test_a_cleaner_that_fails_looks_again(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker(**TINY)
    client = await Client.connect(broker.port)
    await client.create("c", cleanup_policy="compact")
    for _ in range(30):
        await client.produce("c", keyed([(b"k", b"v" * 1000)]))
    await filler(client)
    log = broker.groups[1].log
    for error in (StorageFull("no room"), OSError(28, "No space"), RuntimeError("bug")):
        with monkeypatch.context() as patched:
            patched.setattr(log, "clean", lambda *a, error=error: (_ for _ in ()).throw(error))
            assert await broker.compact() == 0
    assert "is delayed: no room" in caplog.text and "compaction failed" in caplog.text
    assert await broker.compact() > 10_000
    await client.close()


async def test_the_loop_compacts_by_itself(start_broker: StartBroker) -> None:
    broker = await start_broker(**{**TINY, "log_cleaner_backoff_ms": "20"})
    client = await Client.connect(broker.port)
    await client.create("c", cleanup_policy="compact")
    for _ in range(30):
        await client.produce("c", keyed([(b"k", b"v" * 1000)]))
    await filler(client)
    for _ in range(300):
        if len(await read(client, "c")) == 1:
            break
        await asyncio.sleep(0.02)
    left = [record.offset for record in await read(client, "c")]
    assert left == [29], "what the newest batch has replaced goes as well"
    await client.close()


class Time:
    """Clocks of a thread and its process that move as they are told."""

    def __init__(self) -> None:
        self.now = self.own = self.others = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)

    def pace(self, bytes_per_second: float = 1e18) -> IoThrottle:
        return IoThrottle(
            bytes_per_second,
            monotonic=lambda: self.now,
            thread_time=lambda: self.own,
            process_time=lambda: self.own + self.others,
            sleep=self.sleep,
        )

    def work(self, seconds: float, others: float = 0.0) -> None:
        self.now += seconds
        self.own += seconds
        self.others += others


def test_beside_a_busy_broker_the_cleaner_takes_little_of_the_processor() -> None:
    time_, busy = Time(), Time()
    for each, others in ((time_, 0.0), (busy, 0.01)):
        pace = each.pace()
        for _ in range(4000):
            pace(100)
            each.work(SLICE_SECONDS / 3, others)
    assert (
        0.9 * BUSY_PAUSE * 4000 * SLICE_SECONDS / 3 < sum(busy.slept) <= BUSY_PAUSE * 4000 * SLICE_SECONDS / 3
    )
    assert sum(time_.slept) < 3 * IDLE_PAUSE * 4000 * SLICE_SECONDS / 3 + 1
    assert busy.own / busy.now < 0.08


def test_no_more_bytes_a_second_than_allowed() -> None:
    each = Time()
    pace = each.pace(1000)
    for _ in range(1000):
        pace(100)
        each.work(SLICE_SECONDS / 4)
    assert 0.9 < each.now / 100 < 1.1


def test_a_real_pace_takes_the_real_clocks() -> None:
    pace = IoThrottle(1e18)
    began = time.monotonic()
    for _ in range(200_000):
        pace(1)
    assert time.monotonic() - began < 30


async def test_what_one_partition_has_stops_no_other(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tombstones that stay for ever, times that no clock says, and a batch that cannot be made again."""
    broker = await start_broker(**TINY)
    client = await Client.connect(broker.port)
    await client.create("ever", cleanup_policy="compact", delete_retention_ms=str((1 << 63) - 1))
    await client.create("c", cleanup_policy="compact")
    await client.create("odd", message_timestamp_after_max_ms=str((1 << 63) - 1))
    for base in (-(1 << 63), (1 << 63) - 2):
        odd = bytearray(keyed([(b"a", b"1"), (b"b", None), (b"c", b"3")]))
        odd[27:35] = base.to_bytes(8, "big", signed=True)
        odd[17:21] = crc(odd)
        assert (await client.produce("odd", bytes(odd))).error_code == 0, "nobody opens it here"
    assert (await client.produce("odd", keyed([(b"a", b"2")]))).error_code == 0
    assert (await alter(client, (TOPIC, "odd"), ("cleanup.policy", SET, "compact")))[0] == 0
    assert (await client.produce("ever", keyed([(b"k", b"1"), (b"k", None)]))).error_code == 0
    assert (await client.produce("ever", keyed([(b"l", b"1")]))).error_code == 0
    for _ in range(30):
        await client.produce("c", keyed([(b"k", b"v" * 1000)]))
    await filler(client)
    assert await broker.compact() > 10_000
    assert len(await read(client, "c")) == 1
    assert [(r.offset, r.key, r.value) for r in await read(client, "ever")] == [
        (1, b"k", None),
        (2, b"l", b"1"),
    ]
    assert [r.offset for r in await read(client, "odd")] == [4, 5, 6] and "stays" not in caplog.text
    monkeypatch.setattr(compaction_rules, "filter_batch", _cannot)
    assert (await client.produce("c", keyed([(b"k", b"1"), (b"l", None)]))).error_code == 0
    for _ in range(2):
        await client.produce("c", keyed([(b"l", b"2")]))
        await filler(client)
        await broker.compact()
    assert caplog.text.count("c-0: compaction keeps the batch at offset 30, which it cannot decompress") == 1
    await client.close()


async def test_a_flood_of_batches_that_cannot_be_cleaned(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await client.create("c", cleanup_policy="compact", segment_ms="60000")
    compaction, group = compaction_of(broker), broker.groups[1]
    topic = broker.assembly.cluster.topic("c")
    assert topic is not None
    number = topic.partitions[0].log.local_id
    flood: list[int] = []

    async def clean(*_: object) -> Cleaned:
        return Cleaned({number: flood[-1]}, 0, 0, [(number, offset) for offset in flood])

    monkeypatch.setattr(group, "clean", clean)
    told: list[tuple[int, list[str]]] = []
    for count in (4, 4, MAX_WARNINGS, MAX_WARNINGS + 5, MAX_WARNINGS + 5, 10_000):
        flood = list(range(count))
        await client.produce("c", keyed([(b"k", b"v")], 5))
        caplog.clear()
        await broker.compact()
        texts = [each.getMessage() for each in caplog.records if each.name == "lockstep.compaction"]
        named = sum("compaction keeps" in text for text in texts)
        told.append((named, [text for text in texts if "more" in text]))
    assert [named for named, _ in told] == [4, 0, MAX_WARNINGS - 4, 0, 0, 0]
    assert [more for _, more in told] == [
        [],
        [],
        [],
        ["log group 1: compaction cannot clean 5 more batches"],
        [],
        [f"log group 1: compaction cannot clean {10_000 - MAX_WARNINGS} more batches"],
    ]
    assert (
        list(compaction._logged_batches) == [group]
        and len(compaction._logged_batches[group].batches) == MAX_WARNINGS
    )
    compaction._forget_others(set())
    assert not compaction._logged_batches, "a group that is gone is forgotten"


def _cannot(*_: object) -> None:
    raise MalformedBatch("planted")
