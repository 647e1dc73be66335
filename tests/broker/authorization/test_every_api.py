"""Every API that the broker serves asks the authorizer: without an ACL none of them gives anything away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import lockstep.testing
from lockstep.broker.settings.authorizer_settings import STANDARD_AUTHORIZER
from lockstep.protocol.api import ApiKey, api_key_named
from lockstep.protocol.cluster_messages import LockstepClusterRequest
from lockstep.protocol.fields import Struct
from lockstep.protocol.lock_words import ATOMIC_TAG
from lockstep.protocol.messages.add_raft_voter import AddRaftVoterRequest
from lockstep.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from lockstep.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from lockstep.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from lockstep.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lockstep.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from lockstep.protocol.messages.unregister_controller import UnregisterControllerRequest
from lockstep.protocol.private_messages import PRIVATE_MESSAGES
from lockstep.protocol.staged_messages import LockstepStagedRequest
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client, batch
from tests.campaigns.authorization_brokers import Connection
from tests.campaigns.authorization_requests import ROWS, Draw, Row
from tests.support.cases import each_case

UNCHECKED = {
    ApiKey.API_VERSIONS: "a client needs it before it logs in",
    ApiKey.SASL_HANDSHAKE: "the login itself",
    ApiKey.SASL_AUTHENTICATE: "the same",
    ApiKey.CREATE_DELEGATION_TOKEN: "rejected over PLAINTEXT before it is looked at; test_delegation_tokens",
    ApiKey.RENEW_DELEGATION_TOKEN: "owner and renewers alone, whatever ACLs there are",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "the same",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "as for its creation",
}
"""Handlers that ask nobody, each with its reason."""
LISTS = {"list_groups", "list_transactions"}
"""They leave out, without an error."""
DENIED = {29, 30, 31, 53}
OWN: list[tuple[Struct, int]] = [
    (AddRaftVoterRequest(voter_id=5), 31),
    (RemoveRaftVoterRequest(voter_id=5), 31),
    (UnregisterControllerRequest(controller_id=999), 31),
    (
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="a", mechanism=1)]),
        31,
    ),
    (ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["t"]), 30),
    (ConsumerGroupDescribeRequest(group_ids=["g"]), 30),
    (LockstepClusterRequest(body=b'{"do": "status"}'), 31),
    (LockstepClusterRequest(body=b'{"do": "give_up", "topic": "t", "partition": 0}'), 31),
    (LockstepStagedRequest(query="q", topics=["t"]), 53),
    (LockstepStagedRequest(query="q", abandoned=["a"]), 53),
]
"""Requests that Apache Kafka does not have or answers otherwise, or that the campaign does not draw yet."""


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with lockstep.testing.broker_in_thread(authorizer_class_name=STANDARD_AUTHORIZER) as broker:
        connected = Connection(broker.port, "127.0.0.1")
        yield connected
        connected.close()


@pytest.fixture
async def denying(start_broker: StartBroker) -> AsyncIterator[Client]:
    broker = await start_broker(authorizer_class_name=STANDARD_AUTHORIZER)
    connected = await Client.connect(broker.port)
    yield connected
    await connected.close()


def error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key.endswith("error_code"):
                yield each
            else:
                yield from error_codes(each)
    elif isinstance(value, list):
        for each in value:
            yield from error_codes(each)


def names_everything(row: Row, number: int) -> Draw:
    """Words for a request that names a resource."""
    for attempt in range(number * 100, number * 100 + 100):
        _, _, fields = row(Draw(str(attempt), {}))
        if fields.get("topics", True) is not None:
            break
    return Draw(str(attempt), {})


@each_case(
    "row", [each for each in dict.fromkeys(ROWS) if each.__name__ not in LISTS], ids=lambda e: e.__name__
)
def test_a_request_is_denied(connection: Connection, row: Row) -> None:
    for number in range(5):
        api, version, fields = row(names_everything(row, number))
        if api == "describe_cluster":
            assert connection.call((api, version, fields))["cluster_authorized_operations"] == 0
            continue
        if version >= 10 and api in ("produce", "fetch", "metadata", "offset_commit", "offset_fetch"):
            continue  # by ids, of which there are none
        codes = set(error_codes(connection.call((api, version, fields)))) - {0, 100}  # no such id
        assert codes and codes <= DENIED, (api, version, fields)


@each_case("request_, code", OWN, ids=repr)
async def test_a_request_of_our_own_is_denied(denying: Client, request_: Struct, code: int) -> None:
    response = await denying.call(request_, 0)
    codes = [response.error_code] if hasattr(response, "error_code") else []
    for name in ("results", "groups"):
        codes += [each.error_code for each in getattr(response, name, ())]
    assert codes == [code]


async def test_an_atomic_append_is_denied_as_a_whole(denying: Client) -> None:
    data = [PartitionProduceData(index=0, records=batch(b"v"))]
    request = ProduceRequest(acks=-1, timeout_ms=1_000)
    request.topic_data = [TopicProduceData(name=name, partition_data=data) for name in ("t", "u")]
    request.unknown_tags = {ATOMIC_TAG: b""}
    response = await denying.call(request, 9)
    assert [part.error_code for each in response.responses for part in each.partition_responses] == [29, 29]


async def test_no_acks_and_no_access_close_the_connection(denying: Client) -> None:
    data = [PartitionProduceData(index=0, records=batch(b"v"))]
    request = ProduceRequest(acks=0, timeout_ms=1_000)
    request.topic_data = [TopicProduceData(name="t", partition_data=data)]
    with pytest.raises(EOFError):
        await denying.call(request, 9)


async def test_each_api_has_a_row(start_broker: StartBroker) -> None:
    """A new handler is asked about here, or its reason to ask nobody is."""
    broker = await start_broker(authorizer_class_name=STANDARD_AUTHORIZER)
    served = {int(each.api_key) for each in broker.assembly.connections.router.handlers}
    drawn = {api_key_named(row(Draw("1", {}))[0]) for row in ROWS}
    own = {request_.SCHEMA.api_key or 0 for request_, _ in OWN}
    assert served - drawn - own == {int(key) for key in UNCHECKED}
    assert set(PRIVATE_MESSAGES) <= own
