"""The settings of consumer groups, each with its reason: a part of `config.Settings`.

Kafka's names, defaults and bounds, but for what `lockstep.` begins. Source: Kafka's GroupCoordinatorConfig.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.broker.settings.properties import INT32_MAX, MIB, REPLICAS_ARE_THE_GROUPS, Kind, setting


@dataclass(frozen=True)
class ConsumerGroupSettings:
    """Limits and timeouts of groups."""

    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        Kind.INT,
        50,
        "Partitions of __consumer_offsets when it is created.",
        minimum=1,
        unit="partitions",
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", Kind.SHORT, 1, REPLICAS_ARE_THE_GROUPS, minimum=1, unit="replicas"
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        Kind.INT,
        4096,
        "Longest text that a client may commit with an offset.",
        minimum=0,
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        Kind.INT,
        10_080,
        "How long a group without members keeps its offsets.",
        minimum=1,
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        600_000,
        "Interval at which offsets.retention.minutes is enforced.",
        minimum=1,
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        3_000,
        "How long a new group waits for members.",
        minimum=0,
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        Kind.INT,
        6_000,
        "Shortest session timeout that a member may request.",
        minimum=0,
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        Kind.INT,
        1_800_000,
        "Longest session timeout that a member may request.",
        minimum=0,
    )
    group_max_size: int = setting(
        "group.max.size",
        Kind.INT,
        INT32_MAX,
        "Largest number of members of a group, as in Kafka.",
        minimum=1,
        unit="members",
    )
    lockstep_groups_max_bytes: int = setting(
        "lockstep.groups.max.bytes",
        Kind.LONG,
        256 * MIB,
        "Memory for the members of all groups, about 3 KB each and their metadata; beyond it new "
        "members wait.",
        minimum=1,
    )
