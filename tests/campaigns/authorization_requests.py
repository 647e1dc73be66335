"""Requests of each API that the authorizer is asked about, as the authorization campaign draws them.

Owns: one function for each row of docs/authorization.md, which draws a version and the names of resources;
and `outcome`, what of a response two brokers must have in common: the errors of authorization at their
places, the authorized operations, and what lists show. Requests change nothing that later ones depend on:
they name unknown members and producers, or only validate. Does not: send them (`authorization.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from compat_tests.raw import batch, with_crc

Fields = dict[str, Any]
Request = tuple[str, int, Fields]
"""The API's name, a version, and the request's fields."""

TOPICS: Final = ("ta", "tab", "tb")
"""Topics that exist."""
NAMES: Final = (*TOPICS, "tabx", "tc")
GROUPS: Final = ("ga", "gab", "gb")
IDS: Final = ("xa", "xab", "xb")
UNKNOWN_ID: Final = bytes(range(16))
TOPIC, GROUP, BROKER = 2, 32, 4
"""Types of resources with configurations."""


class Draw:
    """The words of one request. Args: topic_ids: by name, of the broker that it is sent to."""

    def __init__(self, seed: str, topic_ids: Mapping[str, bytes]) -> None:
        self.random = random.Random(seed)
        self._topic_ids = topic_ids

    def version(self, first: int, last: int) -> int:
        return self.random.randint(first, last)

    def names(self, known: tuple[str, ...] = NAMES, least: int = 1) -> list[str]:
        return self.random.sample(known, self.random.randint(least, min(3, len(known))))

    def name(self, known: tuple[str, ...] = NAMES) -> str:
        return self.random.choice(known)

    def topic_id(self, name: str) -> bytes:
        return self._topic_ids.get(name, UNKNOWN_ID)


Row = Callable[[Draw], Request]


def produce(draw: Draw) -> Request:
    version = draw.version(3, 13)
    topics: list[Fields] = [
        {
            **({"topic_id": draw.topic_id(name)} if version >= 13 else {"name": name}),
            "partition_data": [{"index": 0, "records": batch([b"v"], timestamp_ms=1_700_000_000_000)}],
        }
        for name in draw.names()
    ]
    fields: Fields = {"acks": -1, "timeout_ms": 5_000, "topic_data": topics}
    if draw.random.random() < 0.2:
        fields["transactional_id"] = "xzz"  # a client that may write in its name has no transaction there
        if draw.random.random() < 0.8:
            for topic in topics:
                data = bytearray(topic["partition_data"][0]["records"])
                data[22] |= 0x10
                topic["partition_data"][0]["records"] = with_crc(data)
    return "produce", version, fields


def fetch(draw: Draw) -> Request:
    version = draw.version(4, 17)
    topics = [
        {
            **({"topic_id": draw.topic_id(name)} if version >= 13 else {"topic": name}),
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}],
        }
        for name in draw.names()
    ]
    return "fetch", version, {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "topics": topics}


def list_offsets(draw: Draw) -> Request:
    topics = [
        {"name": each, "partitions": [{"partition_index": 0, "timestamp": -1}]} for each in draw.names()
    ]
    return "list_offsets", draw.version(1, 10), {"replica_id": -1, "topics": topics}


def offset_for_leader_epoch(draw: Draw) -> Request:
    topics = [{"topic": each, "partitions": [{"partition": 0, "leader_epoch": 0}]} for each in draw.names()]
    return "offset_for_leader_epoch", draw.version(2, 4), {"topics": topics}


def metadata(draw: Draw) -> Request:
    version = draw.version(1, 13)
    fields: Fields = {"topics": None}
    if version >= 12 and draw.random.random() < 0.4:
        fields["topics"] = [{"name": None, "topic_id": draw.topic_id(each)} for each in draw.names()]
    elif draw.random.random() < 0.7:
        # Up to version 3 a topic that is named is created.
        fields["topics"] = [{"name": each} for each in draw.names(NAMES if version >= 4 else TOPICS)]
    if version >= 4:
        fields["allow_auto_topic_creation"] = False
    if version >= 8:
        fields["include_topic_authorized_operations"] = draw.random.random() < 0.5
        if version <= 10:
            fields["include_cluster_authorized_operations"] = draw.random.random() < 0.5
    return "metadata", version, fields


def metadata_that_creates(draw: Draw) -> Request:
    """An invalid name is never created, and whether the client may create it is checked before."""
    return "metadata", draw.version(4, 13), {"topics": [{"name": "t a"}], "allow_auto_topic_creation": True}


def describe_topic_partitions(draw: Draw) -> Request:
    names = [] if draw.random.random() < 0.3 else draw.names()
    fields = {"topics": [{"name": each} for each in names], "response_partition_limit": 2_000, "cursor": None}
    return "describe_topic_partitions", 0, fields


def describe_cluster(draw: Draw) -> Request:
    return "describe_cluster", draw.version(0, 1), {"include_cluster_authorized_operations": True}


def create_topics(draw: Draw) -> Request:
    topics = [
        {"name": each, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for each in draw.names(("tc", "tabx", "td", "ta"))
    ]
    return "create_topics", draw.version(2, 7), {"topics": topics, "timeout_ms": 5_000, "validate_only": True}


def delete_topics(draw: Draw) -> Request:
    """Topics that do not exist, of which a client learns that only if it may describe them."""
    version = draw.version(1, 6)
    names = draw.names(("tc", "tabx"))
    fields: Fields = {"timeout_ms": 5_000, "topic_names": names}
    if version >= 6:
        fields = {"timeout_ms": 5_000, "topics": [{"name": each} for each in names]}
        if draw.random.random() < 0.3:
            fields["topics"].append({"name": None, "topic_id": UNKNOWN_ID})
    return "delete_topics", version, fields


def create_partitions(draw: Draw) -> Request:
    topics = [{"name": each, "count": 2, "assignments": None} for each in draw.names()]
    version = draw.version(0, 3)
    return "create_partitions", version, {"topics": topics, "timeout_ms": 5_000, "validate_only": True}


def delete_records(draw: Draw) -> Request:
    topics = [{"name": each, "partitions": [{"partition_index": 0, "offset": 0}]} for each in draw.names()]
    return "delete_records", draw.version(0, 2), {"topics": topics, "timeout_ms": 5_000}


def describe_producers(draw: Draw) -> Request:
    topics = [{"name": each, "partition_indexes": [0]} for each in draw.names()]
    return "describe_producers", 0, {"topics": topics}


def find_coordinator(draw: Draw) -> Request:
    version = draw.version(0, 5)
    key_type = draw.random.randint(0, 1) if version else 0
    keys = draw.names(IDS if key_type else GROUPS)
    fields: Fields = {"coordinator_keys": keys} if version >= 4 else {"key": keys[0]}
    if version:
        fields["key_type"] = key_type
    return "find_coordinator", version, fields


def join_group(draw: Draw) -> Request:
    """A session timeout that no group allows."""
    fields: Fields = {
        "group_id": draw.name(GROUPS),
        "session_timeout_ms": 1,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    version = draw.version(0, 9)
    if version >= 1:
        fields["rebalance_timeout_ms"] = 1
    return "join_group", version, fields


def sync_group(draw: Draw) -> Request:
    version = draw.version(0, 5)
    fields: Fields = {"group_id": draw.name(GROUPS), "generation_id": 1, "member_id": "m", "assignments": []}
    if version >= 5:
        fields |= {"protocol_type": "consumer", "protocol_name": "range"}
    return "sync_group", version, fields


def heartbeat(draw: Draw) -> Request:
    return (
        "heartbeat",
        draw.version(0, 4),
        {"group_id": draw.name(GROUPS), "generation_id": 1, "member_id": "m"},
    )


def leave_group(draw: Draw) -> Request:
    version = draw.version(0, 5)
    fields: Fields = {"group_id": draw.name(GROUPS)}
    fields |= {"members": [{"member_id": "m"}]} if version >= 3 else {"member_id": "m"}
    return "leave_group", version, fields


def offset_commit(draw: Draw) -> Request:
    version = draw.version(2, 10)
    topics = [
        {
            **({"topic_id": draw.topic_id(name)} if version >= 10 else {"name": name}),
            "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}],
        }
        for name in draw.names()
    ]
    return "offset_commit", version, {"group_id": draw.name(GROUPS), "topics": topics}


def offset_fetch(draw: Draw) -> Request:
    version = draw.version(2, 10)
    topics: list[Fields] | None = None
    if draw.random.random() < 0.6:
        topics = [
            {
                **({"topic_id": draw.topic_id(name)} if version >= 10 else {"name": name}),
                "partition_indexes": [0],
            }
            for name in draw.names()
        ]
    if version >= 8:
        return (
            "offset_fetch",
            version,
            {"groups": [{"group_id": e, "topics": topics} for e in draw.names(GROUPS)]},
        )
    return "offset_fetch", version, {"group_id": draw.name(GROUPS), "topics": topics}


def offset_delete(draw: Draw) -> Request:
    topics = [{"name": each, "partitions": [{"partition_index": 7}]} for each in draw.names()]
    return "offset_delete", 0, {"group_id": draw.name(GROUPS), "topics": topics}


def delete_groups(draw: Draw) -> Request:
    return "delete_groups", draw.version(0, 2), {"groups_names": draw.names(("gabx", "gc"))}


def describe_groups(draw: Draw) -> Request:
    version = draw.version(0, 6)
    fields: Fields = {"groups": draw.names(GROUPS)}
    if version >= 3:
        fields["include_authorized_operations"] = True
    return "describe_groups", version, fields


def list_groups(draw: Draw) -> Request:
    return "list_groups", draw.version(0, 5), {}


def init_producer_id(draw: Draw) -> Request:
    name = None if draw.random.random() < 0.5 else draw.name(IDS)
    return "init_producer_id", draw.version(0, 4), {"transactional_id": name, "transaction_timeout_ms": 1_000}


def add_partitions_to_txn(draw: Draw) -> Request:
    version = draw.version(0, 5)
    topics = [{"name": each, "partitions": [0]} for each in draw.names()]
    producer = {"producer_id": 1 << 40, "producer_epoch": 0}
    if version >= 4:
        transaction = {"transactional_id": draw.name(IDS), **producer, "verify_only": True, "topics": topics}
        return "add_partitions_to_txn", version, {"transactions": [transaction]}
    fields: Fields = {"v3_and_below_transactional_id": draw.name(IDS), "v3_and_below_topics": topics}
    fields |= {f"v3_and_below_{key}": value for key, value in producer.items()}
    return "add_partitions_to_txn", version, fields


def add_offsets_to_txn(draw: Draw) -> Request:
    fields = {"transactional_id": draw.name(IDS), "producer_id": 1 << 40, "group_id": draw.name(GROUPS)}
    return "add_offsets_to_txn", draw.version(0, 4), fields | {"producer_epoch": 0}


def end_txn(draw: Draw) -> Request:
    fields = {"transactional_id": draw.name(IDS), "producer_id": 1 << 40, "producer_epoch": 0}
    return "end_txn", draw.version(0, 4), fields | {"committed": False}


def txn_offset_commit(draw: Draw) -> Request:
    topics = [
        {
            "name": each,
            "partitions": [{"partition_index": 9, "committed_offset": 0, "committed_metadata": ""}],
        }
        for each in draw.names()
    ]
    fields = {"transactional_id": draw.name(IDS), "group_id": draw.name(GROUPS), "producer_id": 1 << 40}
    return "txn_offset_commit", draw.version(0, 4), fields | {"producer_epoch": 0, "topics": topics}


def write_txn_markers(draw: Draw) -> Request:
    topics = [{"name": each, "partition_indexes": [9]} for each in draw.names()]
    marker = {
        "producer_id": 1 << 40,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
    }
    return "write_txn_markers", 1, {"markers": [{**marker, "topics": topics}]}


def describe_transactions(draw: Draw) -> Request:
    return "describe_transactions", 0, {"transactional_ids": draw.names(IDS)}


def list_transactions(draw: Draw) -> Request:
    return "list_transactions", draw.version(0, 1), {}


def describe_acls(draw: Draw) -> Request:
    any_acl = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
    any_entry = {"principal_filter": "User:nobody", "host_filter": None, "operation": 1, "permission_type": 1}
    return "describe_acls", draw.version(1, 3), any_acl | any_entry


def create_acls(draw: Draw) -> Request:
    """ACLs that cannot be."""
    acl = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
    }
    acl |= {"operation": 3, "permission_type": 3}
    changes: list[Fields] = [
        {"principal": "nobody"},
        {"resource_name": ""},
        {"resource_type": 4},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"permission_type": 1},
        {"host": ""},
        {"host": "10.0.0.0/33"},
        {"host": "10.0.0.0/x"},
        {"resource_type": 1},
        {"operation": 99},
    ]
    chosen = draw.random.sample(changes, 3)
    return "create_acls", draw.version(1, 3), {"creations": [acl | each for each in chosen]}


def delete_acls(draw: Draw) -> Request:
    _, version, fields = describe_acls(draw)
    return "delete_acls", version, {"filters": [fields, fields | {"operation": 99}]}


def _config_resources(draw: Draw) -> list[Fields]:
    kinds = [(TOPIC, TOPICS), (GROUP, GROUPS), (BROKER, ("",))]
    chosen = [(kind, draw.name(names)) for kind, names in draw.random.sample(kinds, 2)]
    return [{"resource_type": kind, "resource_name": name} for kind, name in chosen]


def describe_configs(draw: Draw) -> Request:
    resources = [each | {"configuration_keys": ["x"]} for each in _config_resources(draw)]
    return "describe_configs", draw.version(1, 4), {"resources": resources}


def alter_configs(draw: Draw) -> Request:
    resources = [each | {"configs": []} for each in _config_resources(draw)]
    return "alter_configs", draw.version(0, 2), {"resources": resources, "validate_only": True}


def incremental_alter_configs(draw: Draw) -> Request:
    _, _, fields = alter_configs(draw)
    return "incremental_alter_configs", draw.version(0, 1), fields


def list_config_resources(draw: Draw) -> Request:
    return "list_config_resources", 1, {"resource_types": [16]}


def describe_client_quotas(draw: Draw) -> Request:
    component = {"entity_type": "user", "match_type": 0, "match": "nobody"}
    return "describe_client_quotas", draw.version(0, 1), {"components": [component], "strict": False}


def alter_client_quotas(draw: Draw) -> Request:
    op = {"key": "consumer_byte_rate", "value": 0.0, "remove": True}
    entry = {"entity": [{"entity_type": "user", "entity_name": "nobody"}], "ops": [op]}
    return "alter_client_quotas", draw.version(0, 1), {"entries": [entry], "validate_only": True}


def describe_user_scram_credentials(draw: Draw) -> Request:
    return "describe_user_scram_credentials", 0, {"users": [{"name": "nobody"}]}


def describe_log_dirs(draw: Draw) -> Request:
    return "describe_log_dirs", draw.version(3, 4), {"topics": []}


def describe_quorum(draw: Draw) -> Request:
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    return "describe_quorum", draw.version(0, 2), {"topics": topics}


def list_partition_reassignments(draw: Draw) -> Request:
    return "list_partition_reassignments", 0, {"timeout_ms": 5_000, "topics": None}


def alter_partition_reassignments(draw: Draw) -> Request:
    topics = [
        {"name": each, "partitions": [{"partition_index": 0, "replicas": None}]} for each in draw.names()
    ]
    return "alter_partition_reassignments", 0, {"timeout_ms": 5_000, "topics": topics}


def elect_leaders(draw: Draw) -> Request:
    topics = [{"topic": each, "partitions": [0]} for each in draw.names()]
    return "elect_leaders", draw.version(0, 2), {"topic_partitions": topics, "timeout_ms": 5_000}


def alter_replica_log_dirs(draw: Draw) -> Request:
    dirs = [{"path": "/nowhere", "topics": [{"name": each, "partitions": [0]} for each in draw.names()]}]
    return "alter_replica_log_dirs", draw.version(1, 2), {"dirs": dirs}


def update_features(draw: Draw) -> Request:
    update = {"feature": "no.such.feature", "max_version_level": 5}
    return "update_features", draw.version(1, 2), {"feature_updates": [update], "validate_only": True}


def unregister_broker(draw: Draw) -> Request:
    return "unregister_broker", 0, {"broker_id": 999}


ROWS: Final[tuple[Row, ...]] = (
    produce, fetch, list_offsets, offset_for_leader_epoch, metadata, metadata, metadata_that_creates,
    describe_topic_partitions, describe_cluster, create_topics, delete_topics, create_partitions,
    delete_records, describe_producers, find_coordinator, join_group, sync_group, heartbeat, leave_group,
    offset_commit, offset_fetch, offset_delete, delete_groups, describe_groups, list_groups,
    init_producer_id, add_partitions_to_txn, add_offsets_to_txn, end_txn, txn_offset_commit,
    write_txn_markers, describe_transactions, list_transactions, describe_acls, create_acls, delete_acls,
    describe_configs, alter_configs, incremental_alter_configs, list_config_resources,
    describe_client_quotas, alter_client_quotas, describe_user_scram_credentials, describe_log_dirs,
    describe_quorum, list_partition_reassignments, alter_partition_reassignments, elect_leaders,
    alter_replica_log_dirs, update_features, unregister_broker,
)  # fmt: skip


# --- responses ----------------------------------------------------------------------------------------------

ERRORS: Final = frozenset({3, 29, 30, 31, 53, 55, 65, 100})
"""Errors that are compared as they are: those of authorization, and those by which a client learns whether a
resource exists. Any other code, and none, is what a client gets that may do it."""
IDENTITY: Final = (
    "name", "topic", "topic_name", "topic_id", "group_id", "key", "transactional_id", "resource_type",
    "resource_name", "partition_index", "partition", "partition_id", "index", "user",
)  # fmt: skip
"""Fields that say what a part of a response is about."""
LISTED: Final = {
    "list_groups": ("groups", "group_id"),
    "list_transactions": ("transaction_states", "transactional_id"),
}
"""Lists whose elements have no error of their own."""


def outcome(api: str, response: Fields, names: Mapping[bytes, str]) -> list[str]:
    """The lines in which the responses of two brokers must be equal, sorted, each once.

    Args: names: of topics, by id.
    """
    lines: list[str] = []
    _walk(response, "", lines, names)
    if api in LISTED:
        part, field = LISTED[api]
        lines += [f"listed {each[field]}" for each in response[part] if each[field] in (*GROUPS, *IDS)]
    return sorted(set(lines))


def _walk(value: Any, place: str, lines: list[str], names: Mapping[bytes, str]) -> None:
    if isinstance(value, list):
        for number, each in enumerate(value):
            _walk(
                each,
                place if isinstance(each, dict) and _identity(each, names) else f"{place}/{number}",
                lines,
                names,
            )
    if not isinstance(value, dict):
        return
    place += _identity(value, names)
    if value.get("is_internal") or str(value.get("name")).startswith("__"):
        return
    for key, inner in value.items():
        if key.endswith("error_code"):
            lines.append(f"{place} {key}={inner if inner in ERRORS else 'served'}")
        elif key.endswith("authorized_operations"):
            lines.append(f"{place} {key}={inner}")
        elif key not in ("current_leader", "records"):
            _walk(inner, f"{place}/{key}" if isinstance(inner, (dict, list)) else place, lines, names)


def _identity(value: Fields, names: Mapping[bytes, str]) -> str:
    words: list[str] = []
    for key in IDENTITY:
        if key == "topic_id" and words:
            continue  # the topic has a name
        each: Any = value.get(key)
        if hasattr(each, "bytes"):
            each = names.get(each.bytes, "unknown" if any(each.bytes) else None)
        if each not in (None, ""):
            words.append(f"{key}={each}")
    return f"[{','.join(words)}]" if words else ""
