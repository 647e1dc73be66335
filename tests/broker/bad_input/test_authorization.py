"""Faults of other brokers' ACLs, one test a class of docs/evidence/bad_input.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lockstep.broker.settings.authorizer_settings import STANDARD_AUTHORIZER
from lockstep.protocol.acl_codes import AclOperation, AclPermissionType, AclResourceType, PatternType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from lockstep.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from lockstep.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from lockstep.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from lockstep.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client

DOCUMENT = Path(__file__).parents[3] / "docs" / "authorization.md"
PRINCIPAL = "User:ANONYMOUS"
TOPIC = "t"
TOPIC_OPERATIONS = [
    each
    for each in AclOperation
    if AclOperation.ALL < each <= AclOperation.ALTER_CONFIGS and each is not AclOperation.CLUSTER_ACTION
]
REQUESTS: dict[str, Struct] = {
    "CreatePartitions": CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=TOPIC, count=2)], timeout_ms=1_000, validate_only=True
    ),
    "DeleteRecords": DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition()])], timeout_ms=1_000
    ),
    "DescribeProducers": DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])]),
}


def documented() -> dict[str, AclOperation]:
    """The operation on a topic that docs/authorization.md names for each request."""
    found: dict[str, AclOperation] = {}
    for row in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in row.strip("| ").split(" | ")]
        if len(cells) == 3 and cells[0].split("; ")[0] in REQUESTS:
            for name, needs in zip(cells[0].split("; "), cells[1].split("; "), strict=True):
                (operation,) = re.findall(r"^T (\w+)$", needs)
                found[name] = AclOperation[operation]
    return found


def error_of(response: Any) -> int:
    if hasattr(response, "results"):
        return int(response.results[0].error_code)
    return int(response.topics[0].partitions[0].error_code)


async def add(client: Client, *operations: AclOperation) -> None:
    creations = [
        AclCreation(
            resource_type=AclResourceType.TOPIC,
            resource_name=TOPIC,
            resource_pattern_type=PatternType.LITERAL,
            principal=PRINCIPAL,
            host="*",
            operation=operation,
            permission_type=AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    response = await client.call(CreateAclsRequest(creations=creations), 2)
    assert [each.error_code for each in response.results] == [0] * len(operations)


async def remove(client: Client, operation: AclOperation) -> None:
    matched = DeleteAclsFilter(
        resource_type_filter=AclResourceType.TOPIC,
        resource_name_filter=TOPIC,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=PRINCIPAL,
        host_filter="*",
        operation=operation,
        permission_type=AclPermissionType.ALLOW,
    )
    response = await client.call(DeleteAclsRequest(filters=[matched]), 2)
    assert [len(each.matching_acls) for each in response.filter_results] == [1]


async def open_to_acls(start_broker: StartBroker) -> Client:
    """A broker with one topic, on which ACLs decide from the first one on; on the cluster there are none."""
    broker = await start_broker(
        authorizer_class_name=STANDARD_AUTHORIZER, allow_everyone_if_no_acl_found="true"
    )
    client = await Client.connect(broker.port)
    await client.create(TOPIC)
    return client


async def test_each_documented_operation_is_the_one_that_is_checked(start_broker: StartBroker) -> None:
    """CVE-2026-41115: a request asked for another operation than the documentation named."""
    client = await open_to_acls(start_broker)
    wanted = documented()
    assert wanted.keys() == REQUESTS.keys()
    await add(client, AclOperation.CREATE)
    for name, request in REQUESTS.items():
        allowed = []
        for operation in TOPIC_OPERATIONS:
            if operation is AclOperation.CREATE:
                continue
            await add(client, operation)
            if error_of(await client.call(request, 0)) != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                allowed.append(operation)
            await remove(client, operation)
        assert allowed == [wanted[name]], name
    await client.close()


async def test_one_removed_acl_changes_no_other(start_broker: StartBroker) -> None:
    """CVE-2024-27309: after one of two ACLs of a resource was removed the other one was overlooked."""
    client = await open_to_acls(start_broker)
    await add(client, AclOperation.DELETE, AclOperation.DESCRIBE_CONFIGS)
    await remove(client, AclOperation.DESCRIBE_CONFIGS)
    assert error_of(await client.call(REQUESTS["DeleteRecords"], 0)) == 0
    denied = await client.call(REQUESTS["CreatePartitions"], 0)
    assert error_of(denied) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await client.close()
