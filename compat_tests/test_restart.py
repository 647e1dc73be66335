"""kill -9 and a new start, on a broker of its own: what was acknowledged is there, sequences go on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from compat_tests.own_targets import EACH_TARGET, own_target
from compat_tests.raw import batch, raw_connection, values_in
from compat_tests.targets import Target


@pytest.fixture(params=EACH_TARGET)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Not the shared one. Kafka flushes each append, so that both promise the same."""
    with own_target(request.param) as running:
        yield running


@pytest.mark.case(
    "After kill -9", "records, topic id, config, offsets by time, idempotent retries, producer ids"
)
def test_restart(target: Target) -> None:
    base = int(time.time() * 1000) - 60_000  # older producers would have expired
    with raw_connection(target.bootstrap) as raw:
        topic_id = raw.create_topic("kept", 2, {"retention.ms": "86400000", "max.message.bytes": "5000"})
        producer = raw.producer_id()
        for n in range(10):
            data = batch([b"value %d" % n], producer=producer, base_sequence=n, timestamp_ms=base + n)
            assert raw.produce("kept", data)["base_offset"] == n
    target.kill9()
    assert target.exit_code == -9
    target.restart()
    with raw_connection(target.bootstrap) as raw:
        (described,) = raw.call("metadata", 12, topics=[{"name": "kept"}])["topics"]
        assert (described["topic_id"], len(described["partitions"])) == (topic_id, 2)
        found = raw.fetch("kept", 0)
        assert values_in(found["records"]) == [(n, b"value %d" % n) for n in range(10)]
        assert raw.list_offset("kept", base + 4)["offset"] == 4
        again = batch([b"value 9"], producer=producer, base_sequence=9, timestamp_ms=base + 9)
        assert raw.produce("kept", again)["base_offset"] == 9, "a retry is known across the restart"
        gap = batch([b"value 12"], producer=producer, base_sequence=12)
        assert raw.produce("kept", gap)["error_code"] == 45
        following = batch([b"value 10"], producer=producer, base_sequence=10)
        assert raw.produce("kept", following)["base_offset"] == 10
        assert raw.produce("kept", batch([b"x" * 9000]))["error_code"] == 10, "the topic's config is kept"
        assert raw.producer_id()[0] != producer[0]
    assert target.stop() in (0, 143), "SIGTERM stops it cleanly"


@pytest.mark.case(
    "After kill -9", "configurations of topics, brokers and groups that were changed while running"
)
def test_configs(target: Target) -> None:
    changed = {
        (2, "changed"): ("retention.ms", "86400001", 1),
        (4, "1"): ("log.retention.bytes", "86400002", 2),
        (4, ""): ("log.retention.ms", "86400003", 3),
        (32, "g"): ("consumer.session.timeout.ms", "50000", 8),
    }
    resources = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": key, "config_operation": 0, "value": value}],
        }
        for (kind, name), (key, value, _) in changed.items()
    ]
    with raw_connection(target.bootstrap) as raw:
        raw.create_topic("changed", configs={"retention.ms": "5"})
        answer = raw.call("incremental_alter_configs", 1, resources=resources, validate_only=False)
        assert [each["error_code"] for each in answer["responses"]] == [0, 0, 0, 0]
    target.kill9()
    target.restart()
    with raw_connection(target.bootstrap) as raw:
        for (kind, name), (key, value, source) in changed.items():
            wanted = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
            ((found,),) = [
                each["configs"] for each in raw.call("describe_configs", 4, resources=[wanted])["results"]
            ]
            assert (found["value"], found["config_source"]) == (value, source)
        raw.create_topic("another")
