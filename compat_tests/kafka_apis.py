"""The APIs and features that Apache Kafka 4.4.0 lists, what Lockstep lists of them, and why not the rest.

Owns: the list as a broker that was formatted by default gives it on a PLAINTEXT listener, and the table made
of it in docs/compatibility.md. `compat_tests/test_wire_apis.py` holds it against both brokers, and
`tests/broker/requests/test_router.py` against Lockstep's handlers, so that neither side changes unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tabulate import tabulate

from lockstep.protocol.api import ApiKey

Versions = tuple[int, int]
"""The first and the last."""

KAFKAS: Final[Mapping[int, Versions]] = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.API_VERSIONS: (0, 5),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
    ApiKey.TXN_OFFSET_COMMIT: (0, 6),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
    ApiKey.DELETE_GROUPS: (0, 3),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
    ApiKey.SHARE_FETCH: (1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: (0, 1),
    ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 1),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (0, 0),
    ApiKey.UNREGISTER_CONTROLLER: (0, 0),
}
"""API key -> its versions."""

_SHARE: Final = "share groups (KIP-932) are not served"
_STREAMS: Final = "the group protocol `streams` (KIP-1071) is not served"
NOT_LISTED: Final[Mapping[int, str]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: _SHARE,
    ApiKey.SHARE_GROUP_DESCRIBE: _SHARE,
    ApiKey.SHARE_FETCH: _SHARE,
    ApiKey.SHARE_ACKNOWLEDGE: _SHARE,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _SHARE,
    ApiKey.READ_SHARE_GROUP_STATE: _SHARE,
    ApiKey.WRITE_SHARE_GROUP_STATE: _SHARE,
    ApiKey.DELETE_SHARE_GROUP_STATE: _SHARE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _SHARE,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _STREAMS,
    ApiKey.STREAMS_GROUP_DESCRIBE: _STREAMS,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _SHARE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _SHARE,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _SHARE,
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: _STREAMS,
}
"""APIs that Lockstep does not list -> why."""
LOWER: Final[Mapping[int, tuple[Versions, str]]] = {
    ApiKey.TXN_OFFSET_COMMIT: (
        (0, 5),
        "with version 6 the producer of 4.4.0 repeats a request for ever after a topic was created anew",
    ),
}
"""APIs of which Lockstep lists other versions -> which, and why."""

Levels = tuple[Versions, int | None]
"""Of a feature: the supported levels, and the finalized one."""

FEATURES: Final[Mapping[str, Levels]] = {
    "eligible.leader.replicas.version": ((0, 1), 1),
    "group.version": ((0, 1), 1),
    "kraft.version": ((0, 1), None),
    "metadata.version": ((7, 33), 33),
    "share.version": ((0, 2), 2),
    "streams.version": ((0, 1), 1),
    "transaction.version": ((0, 2), 2),
}
"""Kafka's features, as ApiVersions 4 lists them."""
FEATURES_NOT_LISTED: Final[Mapping[str, str]] = {
    "eligible.leader.replicas.version": "only replicas with every acknowledged record are ever elected",
    "kraft.version": "the voters of the quorum follow from the nodes",
    "metadata.version": "it counts the formats of records of Kafka's own controllers",
    "share.version": _SHARE,
    "streams.version": _STREAMS,
}
"""Features that Lockstep does not list -> why."""


def listed_by_lockstep() -> dict[int, Versions]:
    """API key -> its versions, as ApiVersions of Lockstep has to list them."""
    return {
        key: LOWER[key][0] if key in LOWER else versions
        for key, versions in KAFKAS.items()
        if key not in NOT_LISTED
    }


def tables() -> list[str]:
    """The section of docs/compatibility.md, in lines."""
    rows = []
    for key in sorted(KAFKAS):
        if key in NOT_LISTED:
            rows.append([_title(key), _span(KAFKAS[key]), "-", NOT_LISTED[key]])
        elif key in LOWER:
            rows.append([_title(key), _span(KAFKAS[key]), _span(LOWER[key][0]), LOWER[key][1]])
    apis = tabulate(rows, headers=["API", "Kafka 4.4.0", "Lockstep", "why"], tablefmt="github")
    levels = [
        [name, _span(supported), "-" if level is None else level, reason]
        for name, (supported, level) in FEATURES.items()
        if (reason := FEATURES_NOT_LISTED.get(name)) is not None
    ]
    features = tabulate(
        levels, headers=["feature", "supported", "finalized", "why not in Lockstep"], tablefmt="github"
    )
    own = "`lockstep.atomic`, `lockstep.locks` and `lockstep.staged`"
    return [
        "## APIs",
        "",
        f"Lockstep lists {len(listed_by_lockstep())} of the {len(KAFKAS)} APIs that a fresh Kafka 4.4.0 "
        "lists. These it does not list, or not in all versions:",
        "",
        apis,
        "",
        "APIs that are listed without their feature (several log directories, changes of voters and",
        "features) answer with Kafka's own error: [decision 43](decisions/0043-apis-of-absent-features.md).",
        "",
        f"Of the features Lockstep lists group.version and transaction.version as Kafka does, and {own}.",
        "The others:",
        "",
        features,
        "",
    ]


def _title(key: int) -> str:
    name = "".join(part.title() for part in ApiKey(key).name.split("_"))
    return f"{name} ({key})"


def _span(versions: Versions) -> str:
    first, last = versions
    return str(first) if first == last else f"{first} to {last}"
