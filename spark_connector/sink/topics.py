"""Where a query's commit records go: a topic in the log group of what it writes, made where it is missing.

Invariants: stages and their record are in one log group, else nothing is committed; a commit topic keeps
locks and all of its records, else it is refused. Does not: write. Source: docs/staged.md.
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
from spark_connector.connection import BrokerError, Cluster, topic_configs
from spark_connector.options import OptionError
from spark_connector.sink.settings import COMMIT_TOPIC
from spark_connector.sink.stage import groups_of, new_stage

LOCKS: Final = "lockstep.locks"
POLICY: Final = "cleanup.policy"
COMMIT_CONFIGS: Final = {LOCKS: "true", "retention.ms": "-1", "retention.bytes": "-1"}
CREATE_TIMEOUT_MS: Final = 30_000


def commit_topic(cluster: Cluster, query: str, topics: Iterable[str], chosen: str | None) -> str:
    """The topic that the query's commit records go to; it is there when this returns.

    Args:
        topics: all that the query writes to.
        chosen: by the option; None for the one that belongs to the log group.
    Raises ClientError: several log groups, a topic that is not there, a broker that refuses; OptionError for
    a chosen one that would lose records.
    """
    wanted = sorted(set(topics))
    asked = [*wanted, *([chosen] if chosen else [])]
    told = {each.name: each.group_ids for each in new_stage(cluster, query, asked).topics}
    for name in wanted:
        if not told.get(name):
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}", "there is no such topic: make it first"
            )
    (group,) = groups_of(told)
    name = chosen or f"lockstep-spark-commits-{group}"
    if chosen and told.get(chosen):
        _require_kept(cluster, chosen)
    else:
        _create(cluster, name, group)
    return name


def _require_kept(cluster: Cluster, chosen: str) -> None:
    """Raises OptionError. Where retention takes a query's last record, its lock stays, and no later commit is
    taken."""
    also = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
    found = topic_configs(cluster, chosen, [*COMMIT_CONFIGS, POLICY], also=also)
    deletes = "delete" in (found.get(POLICY, "delete") or "").split(",")
    wrong = [
        f"{name}={found.get(name)}"
        for name, wanted in COMMIT_CONFIGS.items()
        if found.get(name) != wanted and (deletes or name == LOCKS)
    ]
    if wrong:
        said = ", ".join(f"{name}={value}" for name, value in COMMIT_CONFIGS.items())
        raise OptionError(
            COMMIT_TOPIC,
            f"{chosen} has {', '.join(wrong)}, and commits need a topic that forgets nothing: set {said}, "
            "or leave the option out",
        )


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
