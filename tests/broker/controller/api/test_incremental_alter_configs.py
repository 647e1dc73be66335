"""IncrementalAlterConfigs: each operation on each type of resource, in force at once and for good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.broker.controller.config_changes import MAX_EDITS, MAX_MESSAGE
from lockstep.broker.metadata.metadata_image import Changed, configs_command
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from tests.broker.conftest import StartBroker
from tests.broker.controller.api.configs import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    LOGGER,
    SET,
    SUBTRACT,
    TOPIC,
    Edits,
    Resource,
    alter,
    alter_all,
    described,
    value,
)
from tests.broker.locks.asking import lock
from tests.broker.wire import Client, batch

T = (TOPIC, "t")
NODE, CLUSTER = (BROKER, "1"), (BROKER, "")
OK = (0, None)


# --- topics -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
async def test_set_and_delete(client: Client, version: int) -> None:
    await client.create("t", max_message_bytes="1000")
    assert await alter(client, T, ("retention.ms", SET, " 5 "), version=version) == OK
    assert await value(client, T, "retention.ms") == ("5", 1)
    assert await value(client, T, "max.message.bytes") == ("1000", 1)
    assert await alter(client, T, ("retention.ms", DELETE, "of no interest"), version=version) == OK
    assert await value(client, T, "retention.ms") == ("604800000", 5)
    assert await alter(client, T, ("no.such", DELETE, None), version=version) == OK
    assert await alter(client, T, version=version) == OK


async def test_limits_follow_at_once(broker: Broker, client: Client) -> None:
    await client.create("t")
    large = batch(b"x" * 5_000)
    assert (await client.produce("t", large)).error_code == 0
    assert await alter(client, T, ("max.message.bytes", SET, "1000")) == OK
    assert (await client.produce("t", large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert await alter(client, T, ("message.timestamp.type", SET, "LogAppendTime")) == OK
    assert (await client.produce("t", batch(b"x"))).log_append_time_ms > 0
    assert await alter(client, T, ("message.timestamp.type", DELETE, None)) == OK
    assert (await client.produce("t", batch(b"x"))).log_append_time_ms == -1
    assert await alter(client, T, ("retention.ms", SET, "0")) == OK
    assert await broker.enforce_retention() == 1


async def test_lists(client: Client) -> None:
    await client.create("t")
    name = "cleanup.policy"
    assert await alter(client, T, (name, APPEND, "delete")) == OK
    assert await value(client, T, name) == ("delete", 1)
    assert await alter(client, T, (name, SUBTRACT, " delete ,compact")) == OK
    assert await value(client, T, name) == ("", 1)
    assert await alter(client, T, (name, APPEND, "delete,delete")) == OK
    assert await value(client, T, name) == ("delete", 1)
    assert await alter(client, T, (name, APPEND, "compact")) == OK
    assert await value(client, T, name) == ("delete,compact", 1)
    error, message = await alter(client, T, (name, APPEND, "compacted"))
    assert (error, name in (message or "")) == (ErrorCode.INVALID_CONFIG, True)
    for operation, word in ((APPEND, "APPEND"), (SUBTRACT, "SUBTRACT")):
        for other in ("retention.ms", "no.such"):
            error, message = await alter(client, T, (other, operation, "1"))
            assert error == ErrorCode.INVALID_CONFIG
            assert message == f"Can't {word} to key {other} because its type is not LIST."


async def test_what_is_described_can_be_written_back(client: Client) -> None:
    """As Terraform and topic operators do; what is not there is among it, with Kafka's default."""
    await client.create("t")
    found = await described(client, T)
    assert {"compression.zstd.level", "remote.storage.enable", "local.retention.ms"} <= found.keys()
    edits = [(name, SET, each.value) for name, each in found.items() if not each.read_only]
    assert await alter(client, T, *edits) == OK
    again = await described(client, T)
    assert {name: each.value for name, each in again.items()} == {
        name: each.value for name, each in found.items()
    }
    assert {each.config_source for each in again.values() if not each.read_only} == {1}


async def test_what_is_not_there_is_refused_in_other_values(client: Client) -> None:
    await client.create("t")
    error, message = await alter(client, T, ("remote.storage.enable", SET, "true"))
    assert error == ErrorCode.INVALID_CONFIG
    assert (message or "").startswith("remote.storage.enable is rejected: this broker has no ")


async def test_values_without_effect_on_records_are_stored_and_each_logged_once(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("lockstep").propagate = True
    await client.create("t")
    name, level = "leader.replication.throttled.replicas", "compression.zstd.level"
    assert await alter(client, T, (name, SET, "0:1"), (level, SET, "9")) == OK
    assert await alter(client, T, (name, APPEND, "0:2"), (level, SET, "9")) == OK
    assert await value(client, T, name) == ("0:1,0:2", 1)
    assert await value(client, T, level) == ("9", 1)
    said = [each.getMessage() for each in caplog.records if "no effect here" in each.getMessage()]
    assert said == [
        f"topic t: {level}=9 is kept and has no effect here: levels of compression cannot be chosen",
        f"topic t: {name}=0:1 is kept and has no effect here: there are no replication quotas",
        f"topic t: {name}=0:1,0:2 is kept and has no effect here: there are no replication quotas",
    ]
    for operation, text in ((SUBTRACT, "0:1,0:2"), (SET, "")):
        assert await alter(client, T, (name, operation, text)) == OK
        assert await value(client, T, name) == ("", 1)
    assert await alter(client, T, (name, DELETE, None)) == OK
    assert await value(client, T, name) == ("", 5)


async def test_a_topic_without_a_policy_loses_nothing(broker: Broker, client: Client) -> None:
    await client.create("t", retention_ms="0", cleanup_policy="")
    await client.produce("t", batch(b"x"))
    assert await broker.enforce_retention() == 0


@pytest.mark.parametrize(
    ("edits", "error"),
    [
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "often")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "-2")], ErrorCode.INVALID_CONFIG),
        ([("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("delete.retention.ms", SET, "-1")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", SET, "compacted")], ErrorCode.INVALID_CONFIG),
        ([("lockstep.group", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 4, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", -1, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.bytes", SET, "1"), ("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        ([(f"c{n}", DELETE, None) for n in range(MAX_EDITS + 1)], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_refused_and_nothing_changed(client: Client, edits: Edits, error: ErrorCode) -> None:
    await client.create("t")
    for validate_only in (True, False):
        found, message = await alter(client, T, *edits, validate_only=validate_only)
        assert found == error
        assert message
    assert {each.config_source for each in (await described(client, T)).values()} <= {4, 5}


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (2, "", ErrorCode.INVALID_REQUEST),
        (2, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (2, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (4, "7", ErrorCode.INVALID_REQUEST),
        (4, "x", ErrorCode.INVALID_REQUEST),
        (4, "1" * 300, ErrorCode.INVALID_REQUEST),
        (8, "", ErrorCode.INVALID_REQUEST),
        (16, "", ErrorCode.INVALID_REQUEST),
        (32, "", ErrorCode.INVALID_REQUEST),
        (0, "t", ErrorCode.INVALID_REQUEST),
        (1, "t", ErrorCode.INVALID_REQUEST),
        (127, "t", ErrorCode.INVALID_REQUEST),
        (-1, "t", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_resources_that_are_not_there(client: Client, kind: int, name: str, error: ErrorCode) -> None:
    assert (await alter(client, (kind, name), ("retention.ms", SET, "1")))[0] == error


async def test_a_refusal_fits_the_oldest_version(client: Client) -> None:
    await client.create("t")
    long = "x" * 32_000
    for edit in ((long, SET, None), (long, SET, "1"), ("retention.ms", SET, long), (long, APPEND, "1")):
        error, message = await alter(client, T, edit, version=0)
        assert error
        assert 0 < len(message or "") <= MAX_MESSAGE


async def test_each_resource_for_itself_and_at_most_once(client: Client) -> None:
    for name in "abc":
        await client.create(name)
    five: Edits = [("retention.ms", SET, "5")]
    outcomes = await alter_all(
        client, ((2, "a"), five), ((2, "b"), five), ((2, "no"), five), ((2, "b"), five), ((2, "c"), five)
    )
    assert [error for error, _ in outcomes] == [0, 42, 3, 42, 0]
    assert [await value(client, (2, name), "retention.ms") for name in "abc"] == [
        ("5", 1),
        ("604800000", 5),
        ("5", 1),
    ]
    assert await alter_all(client) == []


async def test_only_checked(client: Client) -> None:
    await client.create("t")
    assert await alter(client, T, ("retention.ms", SET, "5"), validate_only=True) == OK
    assert await alter(client, CLUSTER, ("log.retention.ms", SET, "5"), validate_only=True) == OK
    assert await alter(client, (LOGGER, "1"), ("root", SET, "TRACE"), validate_only=True) == OK
    assert await value(client, T, "retention.ms") == ("604800000", 5)
    assert await value(client, (LOGGER, "1"), "root") != ("TRACE", 6)


async def test_two_clients_do_not_undo_each_other(broker: Broker, client: Client) -> None:
    await client.create("t")
    names = ["retention.ms", "retention.bytes", "segment.ms", "segment.bytes"]
    clients = [await Client.connect(broker.port) for _ in names]
    await asyncio.gather(
        *(alter(who, T, (name, SET, "2000000")) for who, name in zip(clients, names, strict=True))
    )
    for each in clients:
        await each.close()
    found = await described(client, T)
    assert {name for name, each in found.items() if each.config_source == 1} == set(names)


async def test_a_topic_deleted_meanwhile_stays_deleted(broker: Broker, client: Client) -> None:
    await client.create("t")
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    deletion = asyncio.ensure_future(broker.assembly.topics.delete(topic))
    await asyncio.sleep(0)
    error, _ = await alter(client, T, ("retention.ms", SET, "5"))
    assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await deletion
    await client.create("t")
    assert await value(client, T, "retention.ms") == ("604800000", 5)


async def test_all_of_it_survives_a_restart(start_broker: StartBroker, tmp_path: Path) -> None:
    """From the log, and from a checkpoint."""
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t")
    group = (GROUP, "g")
    assert await alter(client, T, ("retention.ms", SET, "5")) == OK
    assert await alter(client, CLUSTER, ("log.retention.bytes", SET, "6")) == OK
    assert await alter(client, NODE, ("max.connections", SET, "77")) == OK
    assert await alter(client, group, ("consumer.session.timeout.ms", SET, "50000")) == OK
    await client.close()
    for _ in range(2):
        await broker.stop()
        broker = await start_broker()
        client = await Client.connect(broker.port)
        assert await value(client, T, "retention.ms") == ("5", 1)
        assert await value(client, T, "retention.bytes") == ("6", 3)
        assert await value(client, NODE, "max.connections") == ("77", 2)
        assert await value(client, group, "consumer.session.timeout.ms") == ("50000", 8)
        assert broker.assembly.settings.max_connections == 77
        connections = broker.assembly.connections
        assert connections is not None
        assert connections.max_connections == 77
        await client.close()


async def test_a_change_that_no_longer_holds_is_left_out(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    assert await alter(client, CLUSTER, ("message.max.bytes", SET, "400000")) == OK
    await client.close()
    cluster = broker.assembly.cluster
    await broker.stop()
    logging.getLogger("lockstep").propagate = True
    image = cluster.image
    image.configs["broker", ""]["message.max.bytes"] = "999999999"
    image.changed(Changed.CONFIGS, b"")
    assert cluster.settings.message_max_bytes == 200_000
    assert "message.max.bytes" in caplog.text


async def test_a_topics_own_value_precedes_the_brokers(
    start_broker: StartBroker,
) -> None:
    """Its locks and its log group went when the brokers' defaults, or the number of log groups, changed: a
    lock held nobody up any more. And for good with the next change of anything else."""
    broker = await start_broker(lockstep_data_groups="2")
    client = await Client.connect(broker.port)
    await client.create("t", 1, lockstep_locks="true", lockstep_group="2")
    assert await alter(client, CLUSTER, ("log.cleanup.policy", SET, "compact")) == OK
    for seat in ("12A", "12B"):
        assert await lock(client, -1, write_lock=seat) >= 0
        assert await lock(client, -1, write_lock=seat) == -ErrorCode.POLICY_VIOLATION
        refused, message = await alter(client, T, ("retention.ms", SET, "5"))
        assert refused == ErrorCode.INVALID_CONFIG and "lockstep.locks" in (message or "")
        await client.close()
        await broker.stop()
        broker = await start_broker()
        client = await Client.connect(broker.port)
    assert await alter(client, T, ("retention.ms", SET, "5"), ("cleanup.policy", SET, "delete")) == OK
    assert {
        name: each.value for name, each in (await described(client, T)).items() if each.config_source == 1
    } == {
        "cleanup.policy": "delete",
        "lockstep.group": "2",
        "lockstep.locks": "true",
        "retention.ms": "5",
    }
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    await broker.assembly.topics.grow(topic, 3)
    assert {each.group.group_id for each in topic.partitions} == {2}
    await client.close()


# --- brokers ----------------------------------------------------------------------------------------------


async def test_topics_follow_the_broker_where_they_set_nothing(broker: Broker, client: Client) -> None:
    await client.create("t")
    await client.create("own", retention_ms="9")
    assert (
        await alter(client, CLUSTER, ("log.retention.ms", SET, "5"), ("message.max.bytes", SET, "900")) == OK
    )
    assert await value(client, T, "retention.ms") == ("5", 3)
    assert await value(client, (2, "own"), "retention.ms") == ("9", 1)
    assert (await client.produce("t", batch(b"x" * 2_000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert await alter(client, NODE, ("log.retention.ms", SET, "6")) == OK
    assert await value(client, T, "retention.ms") == ("6", 2)
    await client.create("later")
    assert await value(client, (2, "later"), "max.message.bytes") == ("900", 3)
    found = (await described(client, NODE))["log.retention.ms"]
    assert [(each.name, each.value, each.source) for each in found.synonyms] == [
        ("log.retention.ms", "6", 2),
        ("log.retention.ms", "5", 3),
        ("log.retention.hours", "168", 5),
    ]
    everyone = await described(client, CLUSTER)
    assert {name: each.value for name, each in everyone.items()} == {
        "log.retention.ms": "5",
        "message.max.bytes": "900",
    }
    for resource in (NODE, CLUSTER):
        assert await alter(client, resource, ("log.retention.ms", DELETE, None)) == OK
    assert await value(client, T, "retention.ms") == ("604800000", 5)
    assert (await client.produce("t", batch(b"x" * 2_000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert await alter(client, CLUSTER, ("message.max.bytes", DELETE, None)) == OK
    assert (await client.produce("t", batch(b"x" * 2_000))).error_code == 0


async def test_topics_follow_what_a_broker_knows_for_their_sake_alone(client: Client) -> None:
    await client.create("t")
    assert await value(client, T, "segment.ms") == ("604800000", 5)
    edits: Edits = [("log.roll.ms", SET, "7200000"), ("log.preallocate", SET, "true")]
    assert await alter(client, CLUSTER, *edits) == OK
    assert await value(client, T, "segment.ms") == ("7200000", 3)
    assert await value(client, T, "preallocate") == ("true", 3)
    refused, message = await alter(client, NODE, ("log.flush.interval.messages", SET, "1"))
    assert refused == ErrorCode.INVALID_REQUEST and "log.flush=os" in (message or "")
    names = ("unclean.leader.election.enable", "compression.gzip.level", "log.local.retention.ms")
    for name, taken, other in zip(names, ("true", "9", "5"), ("maybe", "0", "-3"), strict=True):
        assert await alter(client, NODE, (name, SET, taken)) == OK
        assert await value(client, NODE, name) == (taken, 2)
        assert await value(client, T, name.removeprefix("log.")) == (taken, 2)
        assert (await alter(client, NODE, (name, SET, other)))[0] == ErrorCode.INVALID_REQUEST


async def test_what_only_warns_in_a_file_is_stored_over_a_restart(
    broker: Broker, client: Client, start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("lockstep").propagate = True
    edits: Edits = [
        ("num.io.threads", SET, "4"),
        ("leader.replication.throttled.rate", SET, "1000000"),
        ("com.example.secret", SET, "hush-hush"),
        ("producer.id.expiration.ms", SET, "86400001"),
    ]
    assert await alter(client, NODE, *edits) == OK
    assert await alter(client, CLUSTER, *edits[:2]) == OK
    names = "com.example.secret, leader.replication.throttled.rate, num.io.threads"
    assert f"broker 1: kept, and without effect here: {names}" in caplog.text
    assert "hush-hush" not in caplog.text
    found = await described(client, NODE)
    assert (found["num.io.threads"].value, found["num.io.threads"].config_source) == ("4", 2)
    secret = found["com.example.secret"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    producers = [each.producers for each in broker.assembly.local_groups.appenders.values()]
    assert {each.expiration_ms for each in producers} == {86_400_001}
    await broker.stop()
    again = await start_broker()
    async_client = await Client.connect(again.port)
    assert await value(async_client, NODE, "num.io.threads") == ("4", 2)
    producers = [each.producers for each in again.assembly.local_groups.appenders.values()]
    assert {each.expiration_ms for each in producers} == {86_400_001}
    assert await alter(async_client, NODE, *((name, DELETE, None) for name, _, _ in edits)) == OK
    assert {each.expiration_ms for each in producers} == {86_400_000}
    assert (await described(async_client, NODE)).keys() >= {"num.io.threads"}, "still set for all"


@pytest.mark.parametrize(
    ("resource", "name", "words"),
    [
        (NODE, "num.partitions", "Cannot update these configs dynamically: [num.partitions]"),
        (NODE, "log.retention.mss", "did you mean log.retention.ms?"),
        (NODE, "ssl.keystore.location", "only per-listener"),
        (CLUSTER, "cordoned.log.dirs", "at default cluster level"),
        (NODE, "lockstep.no.such", "Cannot update these configs dynamically: [lockstep.no.such]"),
    ],
)
async def test_brokers_settings_that_are_refused_while_running(
    client: Client, resource: Resource, name: str, words: str
) -> None:
    refused, message = await alter(client, resource, (name, SET, "1"), ("num.io.threads", SET, "4"))
    assert refused == ErrorCode.INVALID_REQUEST and words in (message or "")
    assert "num.io.threads" not in await described(client, NODE)


async def test_two_changes_that_exclude_each_other(
    broker: Broker, client: Client, start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """They ended each node that heard of both, and each start after that."""
    await client.create("t")
    least, most = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    assert await alter(client, CLUSTER, (most, SET, "8")) == OK
    for resource in (CLUSTER, NODE):
        refused, message = await alter(client, resource, (least, SET, "9"))
        assert refused == ErrorCode.INVALID_REQUEST and f"more than {most}=8" in (message or "")
    # Two nodes may each have accepted one of them.
    recorded = configs_command("broker", "1", {least: "9"})
    await broker.assembly.topics.record_configs([recorded])
    assert broker.failed is None
    logging.getLogger("lockstep").propagate = True
    for _ in range(2):
        assert await value(client, T, "max.compaction.lag.ms") == ("8", 3)
        assert await value(client, T, "min.compaction.lag.ms") == ("0", 5)
        await client.close()
        await broker.stop()
        broker = await start_broker()
        client = await Client.connect(broker.port)
    assert f"{least}" in caplog.text and "it has no effect" in caplog.text
    assert (await alter(client, NODE, ("log.retention.ms", SET, "5")))[0] == ErrorCode.INVALID_REQUEST
    assert await alter(client, NODE, (least, DELETE, None), ("log.retention.ms", SET, "5")) == OK
    assert await value(client, T, "retention.ms") == ("5", 2)
    await client.close()


async def test_connections_are_limited_at_once(broker: Broker, client: Client) -> None:
    for name in ("max.connections", "max.connections.per.ip"):
        assert await alter(client, NODE, (name, SET, "1")) == OK
        one_more = await Client.connect(broker.port)
        assert await one_more.is_closed()
        await one_more.close()
        assert await alter(client, NODE, (name, DELETE, None)) == OK
        one_more = await Client.connect(broker.port)
        await one_more.create(name)
        await one_more.close()


@pytest.mark.parametrize("resource", [NODE, CLUSTER])
async def test_what_needs_a_restart_is_refused(client: Client, resource: tuple[int, str]) -> None:
    error, message = await alter(
        client,
        resource,
        ("num.partitions", SET, "4"),
        ("log.dirs", SET, "/x"),
        ("log.retention.ms", SET, "1"),
    )
    assert error == ErrorCode.INVALID_REQUEST
    assert message == "Cannot update these configs dynamically: [log.dirs, num.partitions]"
    assert await alter(client, resource, ("num.partitions", DELETE, None)) == OK
    for name, text in (("message.max.bytes", "x"), ("max.connections", "0"), ("lockstep.no.such", "1")):
        assert (await alter(client, resource, (name, SET, text)))[0] == ErrorCode.INVALID_REQUEST
    assert (await alter(client, resource, ("message.max.bytes", APPEND, "1")))[0] == ErrorCode.INVALID_CONFIG
    assert await value(client, NODE, "log.retention.ms") == (None, 5)


# --- the others -------------------------------------------------------------------------------------------


async def test_groups(client: Client) -> None:
    group, name = (GROUP, "any name / at all ü"), "consumer.session.timeout.ms"
    assert (
        await alter(client, group, (name, SET, "50000"), ("share.auto.offset.reset", SET, "earliest")) == OK
    )
    assert await value(client, group, name) == ("50000", 8)
    assert (await alter(client, group, (name, SET, "5")))[0] == ErrorCode.INVALID_CONFIG
    assert (await alter(client, group, ("no.such", SET, "5")))[0] == ErrorCode.INVALID_CONFIG
    assert await alter(client, group, (name, DELETE, None)) == OK
    assert await value(client, group, name) == ("45000", 5)
    assert await value(client, group, "share.auto.offset.reset") == ("earliest", 8)
    too_long = await alter(client, (GROUP, "x" * 2_000), (name, SET, "50000"))
    assert too_long[0] == ErrorCode.POLICY_VIOLATION


async def test_so_many_groups(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.broker.controller.config_changes.MAX_CONFIGURED_GROUPS", 2)
    edit: Edits = [("consumer.session.timeout.ms", SET, "50000")]
    for name in "ab":
        assert await alter(client, (GROUP, name), *edit) == OK
    assert (await alter(client, (GROUP, "c"), *edit))[0] == ErrorCode.POLICY_VIOLATION
    assert await alter(client, (GROUP, "a"), ("share.isolation.level", SET, "read_committed")) == OK


async def test_client_metrics_are_not_taken(client: Client) -> None:
    metrics = (CLIENT_METRICS, "m")
    error, message = await alter(client, metrics, ("interval.ms", SET, "1000"))
    assert (error, "not collected" in (message or "")) == (ErrorCode.INVALID_REQUEST, True)
    assert await alter(client, metrics, ("interval.ms", DELETE, None)) == OK


@pytest.fixture
def _levels() -> Iterator[None]:
    top = logging.getLogger("lockstep")
    before = top.level
    yield
    top.setLevel(before)
    logging.getLogger("lockstep.topics").setLevel(logging.NOTSET)


@pytest.mark.usefixtures("_levels")
async def test_log_levels(client: Client) -> None:
    node = (LOGGER, "1")
    assert await alter(client, node, ("root", SET, "ERROR"), ("lockstep.topics", SET, "DEBUG")) == OK
    assert await value(client, node, "root") == ("ERROR", 6)
    assert await value(client, node, "lockstep.topics") == ("DEBUG", 6)
    assert logging.getLogger("lockstep.topics").level == logging.DEBUG
    assert await alter(client, node, ("lockstep.topics", DELETE, None)) == OK
    assert await value(client, node, "lockstep.topics") == ("ERROR", 6)
    for edit, error in (
        (("root", SET, "debug"), ErrorCode.INVALID_CONFIG),
        (("root", SET, None), ErrorCode.INVALID_REQUEST),
        (("nobody", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
    ):
        assert (await alter(client, node, edit))[0] == error


async def test_a_full_disk_keeps_its_reserve_for_deletions(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("t")
    group_log = type(broker.groups[0].log)
    with monkeypatch.context() as full:
        full.setattr(group_log, "has_space_for", lambda self, *_, reserved=False, **__: reserved)
        outcomes = await alter_all(
            client, (T, [("retention.ms", SET, "5")]), ((TOPIC, "no"), []), ((GROUP, ""), [])
        )
    assert [error for error, _ in outcomes] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert await value(client, T, "retention.ms") == ("604800000", 5)
    assert await alter(client, T, ("retention.ms", SET, "5")) == OK


async def test_names_of_clients_write_no_lines_of_their_own(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Names that have no effect here are stored as Kafka stores them, whatever they are made of."""
    caplog.set_level(logging.INFO)
    name = "my.plugin\nERROR forged"
    assert await alter(client, NODE, (name, SET, "x\x1b[2J"), ("num.io.threads", SET, "4")) == OK
    error, message = await alter(client, NODE, ("lockstep.\nforged", SET, "1"))
    assert error == ErrorCode.INVALID_REQUEST and message is not None and "\n" not in message
    assert name in await described(client, NODE)
    lines = [record.getMessage() for record in caplog.records]
    assert any("my.plugin?ERROR forged" in line for line in lines)
    assert all(line.isprintable() for line in lines)
