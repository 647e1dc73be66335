"""The settings of consumer groups, each with its reason: a part of `config.Settings`.

Kafka's names, defaults and bounds, but for what `lockstep.` begins. Source: Kafka's GroupCoordinatorConfig.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lockstep.broker.settings.properties import INT32_MAX, MIB, REPLICAS_ARE_THE_GROUPS, Kind, setting

REBALANCE_PROTOCOLS: Final = ("classic", "consumer", "share", "streams")
ASSIGNOR_CLASSES: Final = {
    "uniform": "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "range": "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
}
"""The name of each assignor, and of its class in Kafka, which a properties file may have."""


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
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols",
        Kind.LIST,
        ("classic", "consumer"),
        "The group protocols that are served: classic, which must be there, and consumer (KIP-848). share "
        "and streams are taken without effect.",
        choices=REBALANCE_PROTOCOLS,
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        Kind.INT,
        45_000,
        "How long a member of a consumer group may be silent before it is removed.",
        minimum=1,
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        Kind.INT,
        45_000,
        "The least group.consumer.session.timeout.ms.",
        minimum=1,
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        Kind.INT,
        60_000,
        "The largest group.consumer.session.timeout.ms.",
        minimum=1,
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        Kind.INT,
        5_000,
        "How often a member of a consumer group is to send a heartbeat.",
        minimum=1,
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        Kind.INT,
        5_000,
        "The least group.consumer.heartbeat.interval.ms.",
        minimum=1,
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        Kind.INT,
        15_000,
        "The largest group.consumer.heartbeat.interval.ms.",
        minimum=1,
    )
    group_consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        Kind.INT,
        1_000,
        "The least time between two assignments of a consumer group.",
        minimum=0,
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        "group.consumer.min.assignment.interval.ms",
        Kind.INT,
        0,
        "The least group.consumer.assignment.interval.ms.",
        minimum=0,
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        "group.consumer.max.assignment.interval.ms",
        Kind.INT,
        15_000,
        "The largest group.consumer.assignment.interval.ms.",
        minimum=0,
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size",
        Kind.INT,
        INT32_MAX,
        "Largest number of members of a consumer group, as in Kafka.",
        minimum=1,
        unit="members",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        Kind.LIST,
        ("uniform", "range"),
        "The assignors of consumer groups, the default first; uniform, range, or the names of their classes "
        "in Kafka.",
        choices=(*ASSIGNOR_CLASSES, *ASSIGNOR_CLASSES.values()),
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        "group.consumer.regex.refresh.interval.ms",
        Kind.INT,
        600_000,
        "The longest time between two evaluations of a regular expression that a group subscribes to.",
        minimum=10_000,
    )
    lockstep_groups_max_bytes: int = setting(
        "lockstep.groups.max.bytes",
        Kind.LONG,
        256 * MIB,
        "Memory for the members of all groups, about 3 KB each and their metadata; beyond it new "
        "members wait.",
        minimum=1,
    )

    @property
    def consumer_assignors(self) -> tuple[str, ...]:
        """The names of the assignors of consumer groups, the default first."""
        names = {class_name: name for name, class_name in ASSIGNOR_CLASSES.items()}
        found = tuple(dict.fromkeys(names.get(each, each) for each in self.group_consumer_assignors))
        return found or tuple(ASSIGNOR_CLASSES)
