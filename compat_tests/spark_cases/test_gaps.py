"""Offsets that compaction has emptied: every way to cut a read, on brokers of its own that compact soon.

In the end each key has its newest record alone. How soon is each broker's affair: that is waited for, and
rows are compared only then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests import harness
from compat_tests.clusters import LockstepThree
from compat_tests.kafka_jars import SHORT_LIVED, require_java
from compat_tests.raw import RawConnection, batch, raw_connection, values_in
from compat_tests.spark_cases.conftest import FIRST_MS, STARTED_MS
from compat_tests.spark_cases.face import Spark, text
from compat_tests.targets import KafkaTarget, LockstepTarget, Target
from compat_tests.until import until

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
        made = KafkaTarget(
            {**SOON, "log.cleaner.dedupe.buffer.size": str(8 << 20)}, heap="256M", jvm=SHORT_LIVED
        )
    else:
        made = LockstepThree(SOON) if request.param == LockstepThree.name else LockstepTarget(SOON)
    with made as running:
        yield running


def write(raw: RawConnection) -> None:
    """Each key again and again; the last record is another segment's, by its time or once that is sealed."""
    for n in range(ROUNDS * KEYS):
        stamp = FIRST_MS + n
        found = raw.produce(TOPIC, batch([b"%d" % n], key=b"key %d" % (n % KEYS), timestamp_ms=stamp))
        assert found["error_code"] == 0, found
    found = raw.produce(TOPIC, batch([b"last"], key=b"last", timestamp_ms=STARTED_MS))
    assert found["error_code"] == 0, found


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
    """Wait until each key has its newest record alone, so that no pass can take more; the offsets."""
    newest = list(range((ROUNDS - 1) * KEYS, ROUNDS * KEYS + 1))
    until(newest, lambda: left(raw), WAIT_S)
    return newest


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
    assert offsets[-1] == end - 1 and len(offsets) == KEYS + 1
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
