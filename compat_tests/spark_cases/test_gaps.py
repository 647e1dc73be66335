"""Offsets that compaction has emptied: every way to cut a read, on brokers of its own that compact soon.

What a compaction leaves behind the newest segment is each broker's affair, so the rows are compared with what
the same broker gives a bare Fetch, and over both brokers only what each key ends with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests import harness
from compat_tests.clusters import LockstepThree
from compat_tests.kafka_jars import require_java
from compat_tests.raw import RawConnection, batch, raw_connection, values_in
from compat_tests.spark_cases.conftest import FIRST_MS, STARTED_MS
from compat_tests.spark_cases.face import Spark, text
from compat_tests.targets import KafkaTarget, LockstepTarget, Target

AREA = "Spark source: transactions and gaps"
TOPIC = "compacted"
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
    "segment.ms": "500",
}
SOON = {"log.cleaner.backoff.ms": "300"}
KEYS, ROUNDS = 5, 40
WAIT_S = 60.0


@pytest.fixture(params=[pytest.param(name, id=f"on-{name}") for name in harness.wanted_targets()])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    made: Target
    if request.param == KafkaTarget.name:
        require_java()
        made = KafkaTarget({**SOON, "log.cleaner.dedupe.buffer.size": str(8 << 20)}, heap="256M")
    else:
        made = LockstepThree(SOON) if request.param == LockstepThree.name else LockstepTarget(SOON)
    with made as running:
        yield running


def write(raw: RawConnection) -> None:
    """Each key again and again; the last records are another segment's."""
    for n in range(ROUNDS * KEYS):
        stamp = FIRST_MS + n
        raw.produce(TOPIC, batch([b"%d" % n], key=b"key %d" % (n % KEYS), timestamp_ms=stamp))
    time.sleep(1.0)
    raw.produce(TOPIC, batch([b"last"], key=b"last", timestamp_ms=STARTED_MS))


def left(raw: RawConnection) -> list[int]:
    """The offsets of all records that there are."""
    end, found, offset = raw.list_offset(TOPIC, -1)["offset"], [], 0
    while offset < end:
        part = [each for each, _ in values_in(raw.fetch(TOPIC, offset)["records"]) if each >= offset]
        if not part:
            break
        found += part
        offset = part[-1] + 1
    return found


def compacted(raw: RawConnection) -> list[int]:
    """Wait until little is left and no pass takes more; the offsets."""
    until = time.monotonic() + WAIT_S
    found = left(raw)
    while len(found) > 3 * KEYS:
        assert time.monotonic() < until, f"{len(found)} records are left after {WAIT_S} s"
        time.sleep(1.0)
        found = left(raw)
    time.sleep(1.5)
    return left(raw)


@pytest.mark.spark("whole")
@pytest.mark.case(
    AREA, "compacted topic: whole, from within a gap, a gap alone, in tasks and batches over gaps"
)
def test_compacted(spark: Spark, target: Target) -> None:
    with raw_connection(target.bootstrap) as raw:
        raw.create_topic(TOPIC, configs=CONFIGS)
        write(raw)
        offsets = compacted(raw)
    end = ROUNDS * KEYS + 1
    assert offsets[-1] == end - 1 and len(offsets) < end // 2
    how: dict[str, Any] = {"subscribe": TOPIC, "kept": False}
    rows = spark.read(**how)
    assert [each["offset"] for each in rows] == offsets
    newest = {each["key"]: each["value"] for each in rows}
    assert newest[text(b"key 0")] == text(b"%d" % ((ROUNDS - 1) * KEYS))
    spark.note("newest", newest)

    middle = end // 2
    assert middle not in offsets
    within = spark.read(**how, startingOffsets={TOPIC: {"0": middle}})
    assert [each["offset"] for each in within] == [each for each in offsets if each >= middle]
    gap = {"startingOffsets": {TOPIC: {"0": middle}}, "endingOffsets": {TOPIC: {"0": middle + 5}}}
    assert not set(range(middle, middle + 5)) & set(offsets)
    assert spark.read(**how, **gap) == []

    tasks, count = spark.read_in_tasks(**how, minPartitions="10")
    assert ([each["offset"] for each in tasks], count) == (offsets, 10)
    taken = spark.stream(**how, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    assert [each["offset"] for each in taken.rows] == offsets
