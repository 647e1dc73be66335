"""broker/audit/: a line for each administrative operation on a resource, and no secret in any."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lockstep.testing
from lockstep.broker.audit.audit_log import MAX_NAME, MAX_WITHOUT_EFFECT, AuditLog
from lockstep.broker.audit.audited_operations import AUDITED, AuditedOperation
from lockstep.broker.process import regular_file
from lockstep.broker.requests.request_context import ClientContext
from lockstep.broker.settings.authorizer_settings import STANDARD_AUTHORIZER
from lockstep.broker.settings.properties import ConfigError
from lockstep.protocol.api import ApiKey, RequestHeader, api_key_named
from lockstep.protocol.cluster_messages import LockstepClusterRequest
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.alter_client_quotas import (
    AlterClientQuotasResponse,
)
from lockstep.protocol.messages.alter_client_quotas import (
    EntityData as ResultEntity,
)
from lockstep.protocol.messages.alter_client_quotas import (
    EntryData as QuotaResult,
)
from lockstep.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from lockstep.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from lockstep.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from lockstep.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from lockstep.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from lockstep.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from lockstep.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from lockstep.protocol.messages.unregister_controller import UnregisterControllerRequest
from tests.broker.conftest import StartBroker, StartCluster
from tests.broker.wire import Client
from tests.campaigns.authorization_brokers import Connection
from tests.campaigns.authorization_requests import ROWS, Draw, Row
from tests.support.cases import each_case

NOT_AUDITED = {
    # data
    ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP, ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.CONSUMER_GROUP_HEARTBEAT, 20001,
    # reading
    ApiKey.METADATA, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.API_VERSIONS, ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.DESCRIBE_QUORUM,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.CONSUMER_GROUP_DESCRIBE,
    # logins
    ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE,
}  # fmt: skip


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def topic(name: str, **fields: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1, **fields)],
        timeout_ms=5_000,
    )


async def connect(start_broker: StartBroker, path: Path, **texts: str) -> Client:
    broker = await start_broker(lockstep_audit_log=str(path), **texts)
    return await Client.connect(broker.port)


async def test_a_line_has_user_address_operation_and_outcome(start_broker: StartBroker, path: Path) -> None:
    client = await connect(start_broker, path)
    await client.call(topic("t", configs=[CreatableTopicConfig(name="retention.ms", value="1000")]), 7)
    await client.call(topic("t"), 7)
    await client.close()
    made, failed = lines_of(path)
    assert made.pop("time").endswith("Z")
    assert made == {
        "node": 1,
        "principal": "User:ANONYMOUS",
        "host": "127.0.0.1",
        "listener": "PLAINTEXT",
        "client_id": made["client_id"],
        "api": "CreateTopics",
        "resource_type": "TOPIC",
        "resource": "t",
        "result": "ALLOWED",
        "error": "NONE",
        "details": {"partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "1000"}},
    }
    assert (failed["result"], failed["error"]) == ("ALLOWED", "TOPIC_ALREADY_EXISTS")


async def test_a_denial(start_broker: StartBroker, path: Path) -> None:
    client = await connect(start_broker, path, authorizer_class_name=STANDARD_AUTHORIZER)
    await client.call(topic("t"), 7)
    await client.close()
    (line,) = lines_of(path)
    assert (line["resource"], line["result"], line["error"]) == ("t", "DENIED", "TOPIC_AUTHORIZATION_FAILED")


async def test_configurations_have_values_but_a_brokers(start_broker: StartBroker, path: Path) -> None:
    client = await connect(start_broker, path)
    await client.call(topic("t"), 7)
    change = AlterableConfig(name="retention.ms", config_operation=0, value="5")
    removal = AlterableConfig(name="retention.bytes", config_operation=1, value=None)
    secret = AlterableConfig(name="listener.name.tls.ssl.key.password", config_operation=0, value="secret")
    resources = [
        AlterConfigsResource(resource_type=2, resource_name="t", configs=[change, removal]),
        AlterConfigsResource(resource_type=4, resource_name="1", configs=[secret]),
    ]
    await client.call(IncrementalAlterConfigsRequest(resources=resources, validate_only=True), 1)
    await client.close()
    _, of_topic, of_broker = lines_of(path)
    assert of_topic["details"] == {
        "configs": [
            {"name": "retention.ms", "operation": "SET", "value": "5"},
            {"name": "retention.bytes", "operation": "DELETE"},
        ],
        "validate_only": True,
    }
    assert (of_broker["resource_type"], of_broker["resource"]) == ("BROKER", "1")
    assert of_broker["details"]["configs"] == [
        {"name": "listener.name.tls.ssl.key.password", "operation": "SET"}
    ]
    assert "secret" not in str(lines_of(path))


async def test_a_user_without_its_password(start_broker: StartBroker, path: Path) -> None:
    client = await connect(start_broker, path)
    upsertion = ScramCredentialUpsertion(
        name="alice", mechanism=2, iterations=4096, salt=b"saltsalt", salted_password=b"passpass"
    )
    await client.call(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    await client.close()
    (line,) = lines_of(path)
    assert (line["resource_type"], line["resource"], line["error"]) == ("USER", "alice", "NONE")
    assert line["details"] == {"credentials": [{"set": "SCRAM-SHA-512"}]}


async def test_an_acl(start_broker: StartBroker, path: Path) -> None:
    client = await connect(
        start_broker, path, authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS"
    )
    creation = AclCreation(
        resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:bob", host="*",
        operation=4, permission_type=3,
    )  # fmt: skip
    await client.call(CreateAclsRequest(creations=[creation]), 3)
    await client.close()
    (line,) = lines_of(path)
    assert (line["resource_type"], line["resource"], line["error"]) == ("TOPIC", "t", "NONE")
    assert line["details"] == {
        "pattern": "LITERAL",
        "principal": "User:bob",
        "host": "*",
        "operation": "WRITE",
        "permission": "ALLOW",
    }


async def test_a_topic_deleted_by_its_id(start_broker: StartBroker, path: Path) -> None:
    client = await connect(start_broker, path)
    made = (await client.call(topic("t"), 7)).topics[0]
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=made.topic_id)], timeout_ms=5_000)
    await client.call(by_id, 6)
    await client.close()
    line = lines_of(path)[-1]
    assert (line["api"], line["resource"], line["details"]) == (
        "DeleteTopics",
        "t",
        {"topic_id": made.topic_id.hex()},
    )


async def test_commands_of_lockstep_cluster(start_broker: StartBroker, path: Path) -> None:
    client = await connect(start_broker, path)
    await client.call(LockstepClusterRequest(body=b'{"do": "status"}'), 0)
    await client.call(LockstepClusterRequest(body=b"no JSON"), 0)
    await client.call(LockstepClusterRequest(body=b'{"do": "add", "node": 4}'), 0)
    await client.call(UnregisterControllerRequest(controller_id=999), 0)
    await client.close()
    added, unregistered = lines_of(path)
    assert (added["resource_type"], added["details"]) == ("CLUSTER", {"do": "add", "node": 4})
    assert added["error"] != "NONE", "a node alone has no cluster"
    assert (unregistered["resource_type"], unregistered["resource"]) == ("NODE", "999")


QUOTA = (
    AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[
                    EntityData(entity_type="user", entity_name="alice"),
                    EntityData(entity_type="client-id", entity_name=None),
                ],
                ops=[
                    OpData(key="producer_byte_rate", value=5.0, remove=False),
                    OpData(key="consumer_byte_rate", value=0.0, remove=True),
                ],
            )
        ]
    ),
    AlterClientQuotasResponse(
        entries=[
            QuotaResult(
                error_code=0,
                entity=[
                    ResultEntity(entity_type="client-id", entity_name=None),
                    ResultEntity(entity_type="user", entity_name="alice"),
                ],
            )
        ]
    ),
    AuditedOperation(
        "CLIENT_QUOTA",
        "client-id=<default>,user=alice",
        0,
        {
            "entity": {"user": "alice", "client-id": None},
            "quotas": {"producer_byte_rate": 5.0, "consumer_byte_rate": None},
        },
    ),
)
TOKEN = (
    CreateDelegationTokenRequest(renewers=[CreatableRenewers(principal_type="User", principal_name="bob")]),
    CreateDelegationTokenResponse(
        principal_type="User", principal_name="alice", token_id="the id", hmac=b"the secret"
    ),
    AuditedOperation("DELEGATION_TOKEN", "the id", 0, {"owner": "User:alice", "renewers": ["User:bob"]}),
)


@each_case("request_, response, operation", [QUOTA, TOKEN], ids=["quota", "token"])
def test_the_operation_of(request_: Struct, response: Struct, operation: AuditedOperation) -> None:
    assert list(AUDITED[request_.SCHEMA.api_key or 0](request_, response)) == [operation]


@each_case(
    ("errors", "error", "counts"),
    [
        ((0, 0), 0, {"deleted": 2}),
        ((0, 56), 0, {"deleted": 1, "failed": 1}),
        ((56, 56), 56, {"deleted": 0, "failed": 2}),
    ],
)
def test_acls_that_could_not_be_deleted_are_counted(
    errors: tuple[int, ...], error: int, counts: dict[str, int]
) -> None:
    matching = [DeleteAclsMatchingAcl(error_code=each) for each in errors]
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(principal_filter="User:a")])
    response = DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(matching_acls=matching)])
    (found,) = AUDITED[ApiKey.DELETE_ACLS](request, response)
    names = ("deleted", "failed")
    assert (found.error, {name: found.details[name] for name in names if name in found.details}) == (
        error,
        counts,
    )


async def test_every_api_is_audited_or_only_reads(start_broker: StartBroker) -> None:
    broker = await start_broker()
    served = {int(each.api_key) for each in broker.assembly.connections.router.handlers}
    assert not set(AUDITED) & {int(each) for each in NOT_AUDITED}
    assert served == set(AUDITED) | {int(each) for each in NOT_AUDITED}


@pytest.fixture(scope="module", params=["", STANDARD_AUTHORIZER], ids=["open", "denying"])
def drawn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Connection, Path]]:
    """A broker that allows all, or nothing, and its audit log."""
    path = tmp_path_factory.mktemp("audit") / "audit.log"
    texts = {"authorizer_class_name": request.param, "lockstep_audit_log": str(path)}
    with lockstep.testing.broker_in_thread(**texts) as broker:
        connected = Connection(broker.port, "127.0.0.1")
        yield connected, path
        connected.close()


@each_case("row", list(dict.fromkeys(ROWS)), ids=lambda each: each.__name__)
def test_any_request_has_the_lines_of_its_errors(drawn: tuple[Connection, Path], row: Row) -> None:
    connection, path = drawn
    for number in range(20):
        before = len(lines_of(path)) if path.exists() else 0
        api, version, fields = row(Draw(str(number), {}))
        answered = error_names(connection.call((api, version, fields)))
        written = lines_of(path)[before:]
        if api_key_named(api) not in AUDITED:
            assert not written
            continue
        assert {line["error"] for line in written} == answered or not fields, (api, version, fields)
        for line in written:
            assert (line["result"] == "DENIED") == line["error"].endswith("AUTHORIZATION_FAILED")


def error_names(value: Any) -> set[str]:
    """The errors of a response, the deepest alone where an error stands above others."""
    if isinstance(value, list):
        return set().union(*map(error_names, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    below = set().union(*(error_names(each) for key, each in value.items() if isinstance(each, list)))
    own = {ErrorCode(code).name for key, code in value.items() if key == "error_code"}
    return own | below if own - {"NONE"} else below or own


# --- limits ------------------------------------------------------------------------------------------------


async def test_denials_do_not_fill_the_disk(start_broker: StartBroker, path: Path) -> None:
    client = await connect(start_broker, path, authorizer_class_name=STANDARD_AUTHORIZER)
    names = [CreatableTopic(name=f"t{each}", num_partitions=1, replication_factor=1) for each in range(500)]
    response = await client.call(CreateTopicsRequest(topics=names, timeout_ms=5_000), 7)
    assert len(response.topics) == 500
    await client.close()
    *denied, last = lines_of(path)
    assert len(denied) == MAX_WITHOUT_EFFECT and {line["result"] for line in denied} == {"DENIED"}
    assert last["details"] == {"left_out": 500 - MAX_WITHOUT_EFFECT}
    assert (last["result"], last["error"]) == ("DENIED", "TOPIC_AUTHORIZATION_FAILED")


async def test_what_was_done_has_a_line_always(start_broker: StartBroker, path: Path) -> None:
    client = await connect(start_broker, path)
    names = [CreatableTopic(name=f"t{each}", num_partitions=1, replication_factor=1) for each in range(250)]
    await client.call(CreateTopicsRequest(topics=names, timeout_ms=5_000), 7)
    await client.close()
    assert [line["resource"] for line in lines_of(path)] == [f"t{each}" for each in range(250)]


async def test_long_names_are_cut_and_long_details_left_out(start_broker: StartBroker, path: Path) -> None:
    client = await connect(start_broker, path)
    await client.call(topic("t" * 30_000), 7)
    changes = [AlterableConfig(name="x" * 30_000, config_operation=0, value="v") for _ in range(3)]
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=changes)
    await client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    await client.close()
    cut, left_out = lines_of(path)
    assert cut["resource"] == "t" * MAX_NAME
    assert left_out["details"].keys() == {"too_long"}


async def test_a_large_command_is_not_read(start_broker: StartBroker, path: Path) -> None:
    client = await connect(start_broker, path)
    await client.call(LockstepClusterRequest(body=b"[" * 100_000), 0)
    await client.close()
    assert lines_of(path) == []


async def test_a_handler_that_fails_has_a_line(start_broker: StartBroker, path: Path) -> None:
    broker = await start_broker(lockstep_audit_log=str(path))
    audit_log, router = broker.assembly.audit_log, broker.assembly.connections.router
    assert audit_log is not None

    async def fail(client: ClientContext, header: RequestHeader, request: object) -> None:
        raise RuntimeError("planted")

    router.route_of(ApiKey.CREATE_TOPICS).handle = fail
    audit_log.watch(router)
    client = await Client.connect(broker.port)
    client.send(topic("t"), 7)
    assert await client.is_closed()
    (line,) = lines_of(path)
    assert (line["api"], line["error"]) == ("CreateTopics", "UNKNOWN_SERVER_ERROR")


# --- the file ----------------------------------------------------------------------------------------------


async def test_a_file_that_was_moved_is_made_again(start_broker: StartBroker, path: Path) -> None:
    client = await connect(start_broker, path)
    await client.call(topic("before"), 7)
    os.rename(path, path.with_suffix(".1"))
    await client.call(topic("after"), 7)
    await client.close()
    assert [line["resource"] for line in lines_of(path.with_suffix(".1"))] == ["before"]
    assert [line["resource"] for line in lines_of(path)] == ["after"]


async def test_a_restart_adds_to_the_file(start_broker: StartBroker, path: Path) -> None:
    broker = await start_broker(lockstep_audit_log=str(path))
    client = await Client.connect(broker.port)
    await client.call(topic("before"), 7)
    await client.close()
    await broker.stop()
    client = await connect(start_broker, path)
    await client.call(topic("after"), 7)
    await client.close()
    assert [line["resource"] for line in lines_of(path)] == ["before", "after"]


async def test_a_directory_that_is_not_there(start_broker: StartBroker, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "audit.log"
    with pytest.raises(ConfigError, match=r"lockstep\.audit\.log.*No such file or directory"):
        await start_broker(lockstep_audit_log=str(path))


async def test_a_line_that_cannot_be_written_fails_no_operation(
    start_broker: StartBroker, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connect(start_broker, path)
    os.unlink(path)
    os.mkdir(path)
    for name in ("t", "u"):
        with caplog.at_level(logging.WARNING, "lockstep.audit"):
            response = await client.call(topic(name), 7)
        assert response.topics[0].error_code == 0
    os.rmdir(path)
    await client.call(topic("v"), 7)
    await client.close()
    (warning,) = (record for record in caplog.records if record.name == "lockstep.audit")
    assert "cannot be written, lines are missing" in warning.message
    assert [line["resource"] for line in lines_of(path)] == ["v"]


async def test_a_full_file_can_be_moved_away(
    start_broker: StartBroker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regular_file, "_check", lambda mode: None)  # the device is full like a disk
    os.symlink("/dev/full", path)
    client = await connect(start_broker, path)
    for name in ("t", "u"):
        assert (await client.call(topic(name), 7)).topics[0].error_code == 0
    os.unlink(path)
    await client.call(topic("v"), 7)
    await client.close()
    assert [line["resource"] for line in lines_of(path)] == ["v"]


async def test_without_the_setting_nothing_is_wrapped(start_broker: StartBroker) -> None:
    broker = await start_broker()
    assert broker.assembly.audit_log is None
    route = broker.assembly.connections.router.route_of(ApiKey.CREATE_TOPICS)
    assert route.handle.__qualname__ == "CreateTopics.handle"


def test_an_audit_log_that_is_not_open_writes_nothing(path: Path) -> None:
    AuditLog(path, 1, lambda: 0, None).close()  # type: ignore[arg-type]
    assert not path.exists()


# --- a cluster ---------------------------------------------------------------------------------------------


async def test_the_controller_writes_a_forwarded_request_once(
    start_cluster: StartCluster, path: Path
) -> None:
    cluster = await start_cluster(3, lockstep_audit_log=str(path))
    await cluster.settled()
    controller = cluster.leader_of(0)
    for node_id in cluster.brokers:
        client = await cluster.client(node_id)
        made = await client.call(topic(f"by-{node_id}"), 7)
        assert made.topics[0].error_code == 0
        auto = MetadataRequest(
            topics=[MetadataRequestTopic(name=f"auto-{node_id}")], allow_auto_topic_creation=True
        )
        await client.call(auto, 12)
    found = {(line["resource"], line["node"], line["host"]) for line in lines_of(path)}
    assert found == {(f"by-{node_id}", controller, "127.0.0.1") for node_id in cluster.brokers}
    assert len(lines_of(path)) == len(cluster.brokers)


async def test_a_change_that_its_node_forwards_in_part_has_one_line(
    start_cluster: StartCluster, path: Path
) -> None:
    cluster = await start_cluster(3, lockstep_audit_log=str(path))
    await cluster.settled()
    first = next(iter(cluster.brokers))
    await (await cluster.client(first)).call(topic("t"), 7)
    for node_id in cluster.brokers:
        client = await cluster.client(node_id)
        change = AlterableConfig(name="retention.ms", config_operation=0, value=str(node_id))
        of_topic = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        of_node = AlterConfigsResource(resource_type=4, resource_name=str(node_id), configs=[change])
        await client.call(IncrementalAlterConfigsRequest(resources=[of_topic, of_node]), 1)
    changes = [line for line in lines_of(path) if line["api"] == "IncrementalAlterConfigs"]
    assert [(line["resource"], line["node"]) for line in changes] == [
        each for node_id in cluster.brokers for each in (("t", node_id), (str(node_id), node_id))
    ]
