"""Validates new topics and the topics that clients may change: rules alone.

Owns: the checks of a new topic and its configuration, and `TopicPlan`, what has passed them.
Does not: validate names (`topic_names.py` does), know which names are taken, count the broker's
partitions or make anything (`broker/controller/topics.py` does).
Source: Kafka's ReplicationControlManager.createTopic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lockstep.broker.metadata.metadata_cache import (
    CONSUMER_OFFSETS,
    CONSUMER_OFFSETS_TOPIC_ID,
    TRANSACTION_STATE,
    TRANSACTION_STATE_TOPIC_ID,
    Topic,
)
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings.config import COMPRESSED_AS_SENT, Settings
from lockstep.broker.settings.topic_config import InvalidTopicConfig, TopicConfig, topic_config
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.plural import pluralize

METADATA_TOPIC: Final = "__cluster_metadata"
RESERVED: Final = {
    METADATA_TOPIC: "the cluster's metadata are kept elsewhere",
    "__share_group_state": "this broker has no share groups",
}
"""Names that only Kafka's own topics have, and why they are not made here."""
FIXED_IDS: Final = {
    CONSUMER_OFFSETS: CONSUMER_OFFSETS_TOPIC_ID,
    TRANSACTION_STATE: TRANSACTION_STATE_TOPIC_ID,
}
"""Topics that the cluster keeps for itself, and makes when they are first needed."""
OWN_OVERRIDES: Final = {"cleanup.policy": "compact", "compression.type": COMPRESSED_AS_SENT}


@dataclass(frozen=True)
class TopicPlan:
    """A topic that may be made."""

    name: str
    partition_count: int
    overrides: Mapping[str, str]
    config: TopicConfig
    topic_id: bytes | None = None
    """The fixed id of an internal topic; other topics get a random one."""


def check_not_reserved(name: str) -> None:
    """Raises RequestError for a name that only Kafka's own topics have."""
    if name in RESERVED:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"Creation of internal topic {name} is prohibited: {RESERVED[name]}.",
        )


def collision_key(name: str) -> str:
    """The same key for two names that collide in Kafka's metrics, where '.' is '_'."""
    return name.replace(".", "_")


def check_may_change(topic: Topic) -> None:
    """Clients may not end or grow a topic that the cluster keeps for itself. Raises RequestError.

    One that only has such a name, from before the cluster had its own, may go: it is in the way.
    """
    if topic.topic_id in FIXED_IDS.values():
        raise RequestError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic {topic.name} is internal: it stays as it is."
        )


def new_partition_count(name: str, requested: int, settings: Settings) -> int:
    """The partition count of a new topic; -1 means the broker's default. Raises RequestError."""
    if name in FIXED_IDS:
        # A group's or a transactional id's partition follows from their number, which is therefore a setting.
        setting, count = "offsets.topic.num.partitions", settings.offsets_topic_num_partitions
        if name == TRANSACTION_STATE:
            setting, count = (
                "transaction.state.log.num.partitions",
                settings.transaction_state_log_num_partitions,
            )
        if requested not in (-1, count):
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS, f"{name} has {setting}={count} partitions, not {requested}."
            )
        return count
    if requested == -1:
        return settings.num_partitions
    if requested < 1:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    return requested


def check_replication_factor(replication_factor: int, node_count: int, replicas: int) -> None:
    """No more copies than nodes, or than a log group has; -1 is the broker's default. Raises RequestError."""
    if replication_factor == 0 or replication_factor < -1:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if replication_factor > node_count:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication "
            f"factor of {replication_factor} cannot be reached because only {node_count} broker(s) are "
            "registered.",
        )
    if replication_factor > replicas:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): partitions have at most "
            f"{pluralize(replicas, 'replica')} here.",
        )


def configured_plan(
    name: str, partition_count: int, overrides: Mapping[str, str], settings: Settings
) -> TopicPlan:
    """A topic whose name and size have been checked, with its configuration. Raises RequestError."""
    is_own = name in FIXED_IDS
    if is_own:
        overrides = {**OWN_OVERRIDES, **overrides}
    try:
        config = topic_config(overrides, settings)
    except InvalidTopicConfig as error:
        raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if is_own and config.cleanup_policy != ("compact",):
        raise RequestError(ErrorCode.INVALID_CONFIG, f"cleanup.policy of {name} can only be compact.")
    return TopicPlan(name, partition_count, dict(overrides), config, FIXED_IDS.get(name))
