"""DescribeConfigs of what is neither a topic nor a broker's settings (those: test_topics.py)."""

from __future__ import annotations

import asyncio

import pytest

from lockstep.broker.controller.api.describe_configs import DescribeConfigs
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tests.broker import fakes
from tests.broker.controller.api.configs import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    LOGGER,
    TOPIC,
    describe,
    described,
)
from tests.broker.fakes import FakeMetadata
from tests.broker.wire import Client


async def test_groups_have_their_defaults_before_they_exist(client: Client) -> None:
    found = await described(client, (GROUP, "nobody"))
    assert len(found) == 21
    timeout = found["consumer.session.timeout.ms"]
    assert (timeout.value, timeout.config_source, timeout.config_type) == ("45000", 5, 3)
    assert [each.name for each in timeout.synonyms] == ["group.consumer.session.timeout.ms"]
    assert not any(each.read_only or each.is_sensitive for each in found.values())


async def test_client_metrics_have_their_defaults(client: Client) -> None:
    found = await described(client, (CLIENT_METRICS, "m"))
    assert {name: (each.value, each.config_type) for name, each in found.items()} == {
        "interval.ms": ("300000", 3),
        "match": ("", 7),
        "metrics": ("", 7),
    }


async def test_loggers(client: Client) -> None:
    found = await described(client, (LOGGER, "1"))
    assert {"root", "lockstep.topics", "lockstep.connection"} <= found.keys()
    assert (found["root"].config_source, found["root"].config_type) == (6, 0)


async def test_what_may_change_while_running_is_not_read_only(client: Client) -> None:
    found = await described(client, (BROKER, "1"))
    writable = {name for name, each in found.items() if not each.read_only}
    assert {"log.retention.ms", "message.max.bytes", "max.connections"} <= writable
    assert not {"log.dirs", "listeners", "advertised.listeners", "node.id", "log.flush"} & writable


async def test_only_the_requested_names(client: Client) -> None:
    await client.create("t")
    result = await describe(client, (TOPIC, "t"), ["retention.ms", "nothing"])
    assert [each.name for each in result.configs] == ["retention.ms"]


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ((GROUP, ""), "Group name must not be empty"),
        ((CLIENT_METRICS, ""), "Client metrics subscription name must not be empty"),
        ((LOGGER, ""), "Broker id must not be empty"),
        ((LOGGER, "7"), "Unexpected broker id, expected 1 but received 7"),
        ((BROKER, "7"), "Unexpected broker id, expected 1 or empty string, but received 7"),
        ((BROKER, " 1"), "Broker id must be an integer, but it is:  1"),
        ((BROKER, "٣"), "Broker id must be an integer, but it is: ٣"),
        ((BROKER, "9" * 5_000), "Broker id must be an integer, but it is: " + "9" * 64),
    ],
)
async def test_refused_in_kafkas_words(client: Client, resource: tuple[int, str], message: str) -> None:
    result = await describe(client, resource)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)


async def test_others_are_served_while_many_are_described() -> None:
    """Ten thousand topics at once took two seconds."""
    names = [f"t{number}" for number in range(1_000)]
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in names]
    )
    handler = DescribeConfigs(FakeMetadata().cluster)
    answering = asyncio.ensure_future(handler.handle(fakes.client(), fakes.header(4), request))
    turns = 0
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 10
    response = answering.result()
    assert isinstance(response, DescribeConfigsResponse)
    assert [each.resource_name for each in response.results] == names


async def test_a_number_may_have_a_sign(client: Client) -> None:
    assert (await describe(client, (BROKER, "+1"))).error_code == 0
