"""AlterConfigs: what is not named is reset."""

from __future__ import annotations

import pytest

from lockstep.protocol.errors import ErrorCode
from tests.broker.controller.api.configs import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    LOGGER,
    SET,
    TOPIC,
    alter,
    described,
    replace,
    value,
)
from tests.broker.wire import Client

T = (TOPIC, "t")
OK = (0, None)


@pytest.mark.parametrize("version", range(3))
async def test_what_is_not_named_is_reset(client: Client, version: int) -> None:
    await client.create("t", retention_ms="5", retention_bytes="6")
    assert await replace(client, T, {"retention.bytes": "7"}, version=version) == OK
    assert await value(client, T, "retention.ms") == ("604800000", 5)
    assert await value(client, T, "retention.bytes") == ("7", 1)
    assert await replace(client, T, {"retention.ms": "9"}, validate_only=True, version=version) == OK
    assert await value(client, T, "retention.bytes") == ("7", 1)
    assert await replace(client, T, {}, version=version) == OK
    assert not [name for name, each in (await described(client, T)).items() if each.config_source == 1]


async def test_what_is_fixed_at_creation_stays(client: Client) -> None:
    await client.create("t", retention_ms="5", lockstep_group="1")
    assert await replace(client, T, {}) == OK
    assert await value(client, T, "lockstep.group") == ("1", 1)
    assert await value(client, T, "retention.ms") == ("604800000", 5)
    assert await replace(client, T, {"lockstep.group": "1"}) == OK
    assert (await replace(client, T, {"lockstep.group": "2"}))[0] == ErrorCode.INVALID_CONFIG


async def test_refused_and_nothing_changed(client: Client) -> None:
    await client.create("t", retention_ms="5")
    for configs, error in (
        ({"retention.ms": None}, ErrorCode.INVALID_REQUEST),
        ({"retention.bytes": "1", "retention.ms": "x"}, ErrorCode.INVALID_CONFIG),
        ({"no.such": "1"}, ErrorCode.INVALID_CONFIG),
    ):
        assert (await replace(client, T, configs))[0] == error
    assert await value(client, T, "retention.ms") == ("5", 1)
    unknown = await replace(client, (TOPIC, "nope"), {"retention.ms": "1"})
    assert unknown[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_brokers_and_groups(client: Client) -> None:
    cluster, group = (BROKER, ""), (GROUP, "g")
    assert await alter(client, cluster, ("log.retention.ms", SET, "5")) == OK
    assert await replace(client, cluster, {"log.retention.bytes": "6"}) == OK
    assert (await described(client, cluster)).keys() == {"log.retention.bytes"}
    refused = await replace(client, cluster, {"num.partitions": "6"})
    assert refused[0] == ErrorCode.INVALID_REQUEST
    assert await replace(client, cluster, {}) == OK
    assert await described(client, cluster) == {}
    assert await replace(client, group, {"share.isolation.level": "read_committed"}) == OK
    assert await value(client, group, "share.isolation.level") == ("read_committed", 8)
    assert await replace(client, group, {}) == OK
    assert await value(client, group, "share.isolation.level") == ("read_uncommitted", 5)


async def test_log_levels_change_only_one_by_one(client: Client) -> None:
    error, message = await replace(client, (LOGGER, "1"), {"root": "INFO"})
    assert (error, message) == (ErrorCode.INVALID_REQUEST, "Unknown resource type 8")
    assert (await replace(client, (CLIENT_METRICS, "m"), {"match": ""}))[0] == ErrorCode.INVALID_REQUEST
