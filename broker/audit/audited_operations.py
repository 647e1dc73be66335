"""The operations of an administrative request, resource by resource, and the error of each.

Owns: the list of audited APIs, and which parts of a request a line has. Invariants: no secret is in a line:
of credentials there is the mechanism, of delegation tokens the owner, of a broker's settings the name alone.
Does not: write the file (`audit_log.py`), or look at requests that only read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from lockstep.protocol.acl_codes import (
    CLUSTER_NAME,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from lockstep.protocol.api import ApiKey
from lockstep.protocol.cluster_messages import CLUSTER_API_KEY
from lockstep.protocol.config_resources import ConfigOperation, ResourceType
from lockstep.protocol.scram import MECHANISMS

Details = Mapping[str, object]
CLUSTER: Final = "CLUSTER"
SCRAM_MECHANISMS: Final = {each.number: each.name for each in MECHANISMS.values()}
MAX_COMMAND_BYTES: Final = 1000
"""The longest command of `lockstep cluster`; a longer one is rejected."""
TYPES_WITH_LOGGED_VALUES: Final = (ResourceType.TOPIC, ResourceType.GROUP)
"""Resources whose configurations have no secrets."""


class AuditedOperation(NamedTuple):
    """An operation on one resource. `error`: Kafka's error code. `details`: the request, for JSON."""

    resource_type: str
    resource: str
    error: int
    details: Details = MappingProxyType({})


Operations = Iterable[AuditedOperation]
"""In the order of the request or of the response."""


def _name(enumeration: Callable[[int], Any], code: int) -> object:
    try:
        return enumeration(code).name
    except ValueError:
        return code


def _partitions(topics: Iterable[Any], field: str = "partitions") -> Iterator[tuple[Any, Any]]:
    """Each partition with its topic."""
    return ((topic, partition) for topic in topics for partition in getattr(topic, field))


def _with_flags(request: Any, details: dict[str, object]) -> Details:
    if request.validate_only:
        details["validate_only"] = True
    return details


# --- topics ------------------------------------------------------------------------------------------------


def _create_topics(request: Any, response: Any) -> Operations:
    requested = {topic.name: topic for topic in request.topics}
    for result in response.topics:
        topic = requested[result.name]
        details: dict[str, object] = {
            "partitions": len(topic.assignments) or topic.num_partitions,
            "replication_factor": topic.replication_factor,
            "configs": {config.name: config.value for config in topic.configs},
        }
        yield AuditedOperation("TOPIC", result.name, result.error_code, _with_flags(request, details))


def _delete_topics(request: Any, response: Any) -> Operations:
    for result in response.responses:
        topic_id = {"topic_id": result.topic_id.hex()} if any(result.topic_id) else {}
        yield AuditedOperation("TOPIC", result.name or "", result.error_code, topic_id)


def _create_partitions(request: Any, response: Any) -> Operations:
    counts = {topic.name: topic.count for topic in request.topics}
    for result in response.results:
        details = _with_flags(request, {"partitions": counts[result.name]})
        yield AuditedOperation("TOPIC", result.name, result.error_code, details)


def _delete_records(request: Any, response: Any) -> Operations:
    offsets = {
        (topic.name, partition.partition_index): partition.offset
        for topic, partition in _partitions(request.topics)
    }
    for topic, partition in _partitions(response.topics):
        index = partition.partition_index
        details = {"partition": index, "before_offset": offsets[topic.name, index]}
        yield AuditedOperation("TOPIC", topic.name, partition.error_code, details)


def _elect_leaders(request: Any, response: Any) -> Operations:
    if response.error_code:
        yield AuditedOperation(CLUSTER, CLUSTER_NAME, response.error_code)
    for topic, partition in _partitions(response.replica_election_results, "partition_result"):
        details = {"partition": partition.partition_id}
        yield AuditedOperation("TOPIC", topic.topic, partition.error_code, details)


def _alter_partition_reassignments(request: Any, response: Any) -> Operations:
    if response.error_code:
        yield AuditedOperation(CLUSTER, CLUSTER_NAME, response.error_code)
    replicas = {
        (topic.name, partition.partition_index): partition.replicas
        for topic, partition in _partitions(request.topics)
    }
    for topic, partition in _partitions(response.responses):
        index = partition.partition_index
        details = {"partition": index, "replicas": replicas.get((topic.name, index))}
        yield AuditedOperation("TOPIC", topic.name, partition.error_code, details)


def _alter_replica_log_dirs(request: Any, response: Any) -> Operations:
    for topic, partition in _partitions(response.results):
        details = {"partition": partition.partition_index}
        yield AuditedOperation("TOPIC", topic.topic_name, partition.error_code, details)


def _write_txn_markers(request: Any, response: Any) -> Operations:
    """The markers of `kafka-transactions --abort`."""
    committed = {each.producer_id: each.transaction_result for each in request.markers}
    for marker in response.markers:
        for topic, partition in _partitions(marker.topics):
            details = {
                "partition": partition.partition_index,
                "producer_id": marker.producer_id,
                "marker": "COMMIT" if committed[marker.producer_id] else "ABORT",
            }
            yield AuditedOperation("TOPIC", topic.name, partition.error_code, details)


# --- configurations and groups -----------------------------------------------------------------------------


def _alter_configs(request: Any, response: Any) -> Operations:
    requested = {(each.resource_type, each.resource_name): each.configs for each in request.resources}
    for result in response.responses:
        key = (result.resource_type, result.resource_name)
        shown = result.resource_type in TYPES_WITH_LOGGED_VALUES
        configs: list[dict[str, object]] = []
        for config in requested[key]:
            change: dict[str, object] = {"name": config.name}
            if hasattr(config, "config_operation"):
                change["operation"] = _name(ConfigOperation, config.config_operation)
            if shown and config.value is not None:
                change["value"] = config.value
            configs.append(change)
        details = _with_flags(request, {"configs": configs})
        resource_type = str(_name(ResourceType, result.resource_type))
        yield AuditedOperation(resource_type, result.resource_name, result.error_code, details)


def _delete_groups(request: Any, response: Any) -> Operations:
    return (AuditedOperation("GROUP", each.group_id, each.error_code) for each in response.results)


def _offset_delete(request: Any, response: Any) -> Operations:
    if response.error_code:
        yield AuditedOperation("GROUP", request.group_id, response.error_code)
    for topic, partition in _partitions(response.topics):
        details = {"topic": topic.name, "partition": partition.partition_index}
        yield AuditedOperation("GROUP", request.group_id, partition.error_code, details)


# --- security ----------------------------------------------------------------------------------------------


def _acl(acl: Any) -> Details:
    return {
        "pattern": _name(PatternType, acl.resource_pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _name(AclOperation, acl.operation),
        "permission": _name(AclPermissionType, acl.permission_type),
    }


def _create_acls(request: Any, response: Any) -> Operations:
    for acl, result in zip(request.creations, response.results, strict=True):
        resource_type = str(_name(AclResourceType, acl.resource_type))
        yield AuditedOperation(resource_type, acl.resource_name, result.error_code, _acl(acl))


def _delete_acls(request: Any, response: Any) -> Operations:
    for acl_filter, result in zip(request.filters, response.filter_results, strict=True):
        failed = [each.error_code for each in result.matching_acls if each.error_code]
        deleted = len(result.matching_acls) - len(failed)
        details = {
            "pattern": _name(PatternType, acl_filter.pattern_type_filter),
            "principal": acl_filter.principal_filter,
            "host": acl_filter.host_filter,
            "operation": _name(AclOperation, acl_filter.operation),
            "permission": _name(AclPermissionType, acl_filter.permission_type),
            "deleted": deleted,
        }
        error = result.error_code
        if failed:
            details["failed"] = len(failed)
            error = error if deleted else failed[0]  # what was done, and be it a part, has a line always
        resource_type = str(_name(AclResourceType, acl_filter.resource_type_filter))
        name = acl_filter.resource_name_filter
        yield AuditedOperation(resource_type, name if name is not None else "*", error, details)


def _alter_user_scram_credentials(request: Any, response: Any) -> Operations:
    changes: dict[str, list[object]] = {}
    for word, credentials in (("delete", request.deletions), ("set", request.upsertions)):
        for each in credentials:
            mechanism = SCRAM_MECHANISMS.get(each.mechanism, each.mechanism)
            changes.setdefault(each.name, []).append({word: mechanism})
    for result in response.results:
        details = {"credentials": changes.get(result.user, [])}
        yield AuditedOperation("USER", result.user, result.error_code, details)


def _alter_client_quotas(request: Any, response: Any) -> Operations:
    errors = {
        frozenset((part.entity_type, part.entity_name) for part in each.entity): each.error_code
        for each in response.entries
    }  # one for an entity that the request names twice
    for entry in request.entries:
        entity = {each.entity_type: each.entity_name for each in entry.entity}
        quotas = {each.key: None if each.remove else each.value for each in entry.ops}
        details = _with_flags(request, {"entity": entity, "quotas": quotas})
        error = errors.get(frozenset(entity.items()), 0)
        yield AuditedOperation("CLIENT_QUOTA", _entity_name(entity), error, details)


def _entity_name(entity: Mapping[str, str | None]) -> str:
    """`user=alice,client-id=<default>`."""
    return ",".join(
        f"{kind}={'<default>' if name is None else name}" for kind, name in sorted(entity.items())
    )


def _create_delegation_token(request: Any, response: Any) -> Operations:
    owner = f"{response.principal_type}:{response.principal_name}"
    renewers = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
    details = {"owner": owner, "renewers": renewers}
    return [AuditedOperation("DELEGATION_TOKEN", response.token_id, response.error_code, details)]


def _renew_or_expire_delegation_token(request: Any, response: Any) -> Operations:
    details = {"expiry_timestamp_ms": response.expiry_timestamp_ms}
    return [AuditedOperation("DELEGATION_TOKEN", "", response.error_code, details)]


# --- nodes and features ------------------------------------------------------------------------------------


def _update_features(request: Any, response: Any) -> Operations:
    updates = {each.feature: each.max_version_level for each in request.feature_updates}
    details = _with_flags(request, {"features": updates})
    errors: Sequence[int] = [each.error_code for each in response.results if each.error_code]
    error = response.error_code or next(iter(errors), 0)
    return [AuditedOperation(CLUSTER, CLUSTER_NAME, error, details)]


def _of_node(field: str) -> Callable[[Any, Any], Operations]:
    def operations(request: Any, response: Any) -> Operations:
        return [AuditedOperation("NODE", str(getattr(request, field)), response.error_code)]

    return operations


def _lockstep_cluster(request: Any, response: Any) -> Iterator[AuditedOperation]:
    """A command; the status is only read."""
    if len(request.body) > MAX_COMMAND_BYTES:
        return  # rejected unread
    try:
        command = json.loads(bytes(request.body))
    except (ValueError, RecursionError):
        return
    if isinstance(command, dict) and command.get("do") != "status":
        yield AuditedOperation(CLUSTER, CLUSTER_NAME, response.error_code, command)


AUDITED: Final[Mapping[int, Callable[[Any, Any], Operations]]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _renew_or_expire_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _renew_or_expire_delegation_token,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.ADD_RAFT_VOTER: _of_node("voter_id"),
    ApiKey.REMOVE_RAFT_VOTER: _of_node("voter_id"),
    ApiKey.UNREGISTER_BROKER: _of_node("broker_id"),
    ApiKey.UNREGISTER_CONTROLLER: _of_node("controller_id"),
    CLUSTER_API_KEY: _lockstep_cluster,
}
"""The APIs that change something that is not data: by API key, what makes the operations of a request."""
