"""The topic of a query's commit records: it is in the log group of the rows, and created where it is missing.

Invariants: stages and their record are in one log group, else nothing is committed; a commit topic keeps
locks and all of its records, else it is rejected. Does not: write. Source: docs/staged.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from spark_connector.connection import BrokerError, ClusterClient, topic_configs
from spark_connector.options import OptionError
from spark_connector.sink.settings import COMMIT_TOPIC
from spark_connector.sink.stage import groups_of, new_stage

LOCKS: Final = "lockstep.locks"
POLICY: Final = "cleanup.policy"
COMMIT_CONFIGS: Final = {LOCKS: "true", "retention.ms": "-1", "retention.bytes": "-1"}
CREATE_TIMEOUT_MS: Final = 30_000


def commit_topic(cluster: ClusterClient, query: str, topics: Iterable[str], chosen: str | None) -> str:
    """The topic of the query's commit records; it exists when this returns.

    Args:
        topics: all topics of the query's rows.
        chosen: the option's value; None for the topic that belongs to the log group.
    Raises ClientError for several log groups, a missing topic or a broker's error; OptionError for a chosen
    topic that would lose records.
    """
    wanted = sorted(set(topics))
    requested = [*wanted, *([chosen] if chosen else [])]
    group_ids = {each.name: each.group_ids for each in new_stage(cluster, query, requested).topics}
    for name in wanted:
        if not group_ids.get(name):
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}", "there is no such topic: make it first"
            )
    (group,) = groups_of(group_ids)
    name = chosen or f"lockstep-spark-commits-{group}"
    if chosen and group_ids.get(chosen):
        _require_kept(cluster, chosen)
    else:
        _create(cluster, name, group)
    return name


def _require_kept(cluster: ClusterClient, chosen: str) -> None:
    """Raises OptionError. Where retention deletes a query's last record, its lock stays, and every later
    commit is rejected."""
    retriable = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
    found = topic_configs(cluster, chosen, [*COMMIT_CONFIGS, POLICY], retriable=retriable)
    deletes = "delete" in (found.get(POLICY, "delete") or "").split(",")
    wrong = [
        f"{name}={found.get(name)}"
        for name, wanted in COMMIT_CONFIGS.items()
        if found.get(name) != wanted and (deletes or name == LOCKS)
    ]
    if wrong:
        required = ", ".join(f"{name}={value}" for name, value in COMMIT_CONFIGS.items())
        raise OptionError(
            COMMIT_TOPIC,
            f"{chosen} has {', '.join(wrong)}, and commits need a topic that forgets nothing: set "
            f"{required}, or leave the option out",
        )


def _create(cluster: ClusterClient, name: str, group_id: int) -> None:
    try:
        cluster.topic(name)
        return
    except BrokerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    configs = {**COMMIT_CONFIGS, "lockstep.group": str(group_id)}
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=-1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
        ],
        timeout_ms=CREATE_TIMEOUT_MS,
    )

    def attempt() -> None:
        response = cluster.any().call(request, CreateTopicsResponse)
        for each in response.topics:
            if each.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise BrokerError(each.error_code, f"commit topic {name}", each.error_message)

    cluster.retry(attempt)
    cluster.refresh()
    cluster.retry(lambda: cluster.leader(name, 0), retriable=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))
