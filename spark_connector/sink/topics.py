"""Where a query's commit records go: a topic in the log group of what it writes, made where it is missing.

Invariants: stages and their record are in one log group, else nothing is begun; a commit topic keeps locks
and all of its records. Does not: write. Source: docs/staged.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from spark_connector.connection import BrokerError, ClientError, Cluster
from spark_connector.sink.stage import new_stage

COMMIT_CONFIGS: Final = {"lockstep.locks": "true", "retention.ms": "-1", "retention.bytes": "-1"}
CREATE_TIMEOUT_MS: Final = 30_000


def commit_topic(cluster: Cluster, query: str, topics: Iterable[str], chosen: str | None) -> str:
    """The topic that the query's commit records go to; it is there when this returns.

    Args:
        topics: all that the query writes to.
        chosen: by the option; None for the one that belongs to the log group.
    Raises ClientError: several log groups, a topic that is not there, a broker that refuses.
    """
    wanted = sorted(set(topics))
    asked = [*wanted, *([chosen] if chosen else [])]
    told = {each.name: each.group_ids for each in new_stage(cluster, query, asked).topics}
    for name in wanted:
        if not told.get(name):
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}", "there is no such topic: make it first"
            )
    groups = sorted({group for name in asked for group in told.get(name, [])})
    if len(groups) > 1:
        where = "; ".join(f"{name} in {', '.join(map(str, told[name]))}" for name in asked if told.get(name))
        raise ClientError(
            f"the exactly-once sink writes to one log group, and this is in {len(groups)} ({where}); make "
            "the topics with the same lockstep.group"
        )
    name = chosen or f"lockstep-spark-commits-{groups[0]}"
    if not chosen or not told.get(chosen):
        _create(cluster, name, groups[0])
    return name


def _create(cluster: Cluster, name: str, group_id: int) -> None:
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

    def ask() -> None:
        answer = cluster.any().call(request, CreateTopicsResponse)
        for each in answer.topics:
            if each.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise BrokerError(each.error_code, f"commit topic {name}", each.error_message)

    cluster.retried(ask)
    cluster.refresh()
    cluster.retried(lambda: cluster.leader(name, 0), also=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))
