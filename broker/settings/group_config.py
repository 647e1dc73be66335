"""Configurations of groups: what a group may set for itself, its defaults and its bounds.

Owns: Kafka 4.4.0's names for groups of the consumer, share and streams protocols. They are stored, checked
and described as Kafka does. Those of the consumer protocol are in force, the others will be the day their
protocol is served; the classic protocol has no configuration of its own. Does not: store anything
(`broker/metadata/metadata_image.py` does). Source: Kafka's GroupConfig; bounds are broker defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lockstep.broker.settings.properties import ConfigError, Kind, Property

MAX_CONFIGURED_GROUPS: Final = 10_000
"""Groups with a configuration: each is kept in memory and in every checkpoint of the metadata."""
MAX_GROUP_NAME: Final = 1_024
"""Characters of the name of a group with a configuration, for the same reason."""

_OFFSET_RESET: Final = re.compile(
    r"earliest|latest|by_duration:P(?=[0-9T])(?:[0-9]{1,9}D)?(?:T(?=[0-9])(?:[0-9]{1,9}H)?(?:[0-9]{1,9}M)?"
    r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?S)?)?",
    re.ASCII | re.IGNORECASE,
)


class InvalidGroupConfig(ValueError):
    """A configuration that is unknown or malformed; the text names it."""


@dataclass(frozen=True)
class GroupProperty:
    """One configuration, and between which settings of the broker it must stay."""

    declared: Property
    broker_name: str
    """The broker setting it follows by default."""
    broker_minimum: tuple[str, int] | None = None
    """A setting that it must not be below, and that setting's value."""
    broker_maximum: tuple[str, int] | None = None


def _number(
    name: str,
    default: int,
    minimum: int,
    doc: str,
    broker_minimum: int | None = None,
    broker_maximum: int | None = None,
    *,
    is_internal: bool = False,
) -> GroupProperty:
    family, _, rest = name.partition(".")
    bounded = rest.removeprefix("num.")
    return GroupProperty(
        Property(name, Kind.INT, default, doc, minimum, is_internal=is_internal),
        f"group.{name}",
        None if broker_minimum is None else (f"group.{family}.min.{bounded}", broker_minimum),
        None if broker_maximum is None else (f"group.{family}.max.{bounded}", broker_maximum),
    )


def _timeouts(family: str) -> list[GroupProperty]:
    return [
        _number(
            f"{family}.session.timeout.ms",
            45_000,
            1,
            "How long a member may be silent before it is taken for gone.",
            45_000,
            60_000,
        ),
        _number(
            f"{family}.heartbeat.interval.ms",
            5_000,
            1,
            "How often a member is to send a heartbeat.",
            5_000,
            15_000,
        ),
        _number(
            f"{family}.assignment.interval.ms",
            1_000,
            0,
            "The least time between two assignments.",
            0,
            15_000,
        ),
    ]


_OWN_NAMES: Final = (
    Property("share.auto.offset.reset", Kind.STRING, "latest", "Where a share group begins to read."),
    Property(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        "Whether a share group reads records of open transactions.",
        choices=("read_committed", "read_uncommitted"),
    ),
    Property(
        "share.renew.acknowledge.enable",
        Kind.BOOLEAN,
        True,
        "Whether members of a share group may renew their lock on a record.",
    ),
    Property(
        "errors.deadletterqueue.copy.record.enable",
        Kind.BOOLEAN,
        False,
        "Whether a dead letter of a share group carries the record itself.",
    ),
    Property(
        "errors.deadletterqueue.topic.name",
        Kind.STRING,
        "",
        "The topic for the dead letters of a share group; none where empty.",
    ),
)

_OF_BROKERS: Final = (
    Property(
        "streams.assignor.name", Kind.STRING, "sticky", "Who assigns a group's tasks.", choices=("sticky",)
    ),
    Property(
        "streams.rack.aware.assignment.tags", Kind.LIST, (), "Tags of clients that standbys are spread over."
    ),
    Property(
        "streams.acceptable.recovery.lag",
        Kind.LONG,
        10_000,
        "How far behind a task may be and count as caught up.",
        minimum=0,
        is_internal=True,
    ),
    *(
        Property(
            f"{family}.assignor.offload.enable",
            Kind.BOOLEAN,
            True,
            "Whether assignments are made on a thread of their own.",
            is_internal=True,
        )
        for family in ("consumer", "share", "streams")
    ),
)
_BROKER_NAMES: Final = {"streams.assignor.name": "group.streams.assignors"}
"""Broker settings whose name is not that of the group's with `group.` before it."""

GROUP_PROPERTIES: Final[Mapping[str, GroupProperty]] = {
    each.declared.name: each
    for each in (
        *_timeouts("consumer"),
        *_timeouts("share"),
        *_timeouts("streams"),
        _number("share.delivery.count.limit", 5, 2, "How often a record is delivered at most.", 2, 10),
        _number(
            "share.partition.max.record.locks",
            2_000,
            100,
            "Records of one partition that may be locked at a time.",
            100,
            4_000,
        ),
        _number(
            "share.record.lock.duration.ms", 30_000, 1_000, "How long a record stays locked.", 15_000, 60_000
        ),
        _number("streams.num.standby.replicas", 0, 0, "Standby replicas of each task.", broker_maximum=2),
        _number(
            "streams.initial.rebalance.delay.ms", 3_000, 0, "How long the first assignment waits for members."
        ),
        _number(
            "streams.num.warmup.replicas",
            2,
            0,
            "Warm-up replicas of a group.",
            broker_maximum=20,
            is_internal=True,
        ),
        _number(
            "streams.task.offset.interval.ms",
            60_000,
            1,
            "How often members report the offsets of their tasks.",
            15_000,
            is_internal=True,
        ),
        *(GroupProperty(each, each.name) for each in _OWN_NAMES),
        *(GroupProperty(each, _BROKER_NAMES.get(each.name, f"group.{each.name}")) for each in _OF_BROKERS),
    )
}
"""Configuration name -> its declaration."""


def group_config(texts: Mapping[str, str]) -> dict[str, str]:
    """`texts` checked, each value as it is stored and shown. Raises InvalidGroupConfig."""
    return {name: group_value(name, text) for name, text in texts.items()}


def group_value(name: str, text: str) -> str:
    """One value as it is stored and shown. Raises InvalidGroupConfig."""
    known = GROUP_PROPERTIES.get(name)
    if known is None:
        raise InvalidGroupConfig(f"Unknown group config name: {name}")
    try:
        value = known.declared.parse(text)
    except ConfigError as error:
        raise InvalidGroupConfig(f"Invalid value {text} for configuration {name}: {error.problem}") from None
    if known.broker_minimum is not None and value < known.broker_minimum[1]:
        raise InvalidGroupConfig(
            f"{name} must be greater than or equal to {known.broker_minimum[0]} ({known.broker_minimum[1]})"
        )
    if known.broker_maximum is not None and value > known.broker_maximum[1]:
        raise InvalidGroupConfig(
            f"{name} must be less than or equal to {known.broker_maximum[0]} ({known.broker_maximum[1]})"
        )
    if name == "share.auto.offset.reset" and not _OFFSET_RESET.fullmatch(value):
        raise InvalidGroupConfig(
            f"Invalid value {text} for configuration {name}: must be earliest, latest or "
            "by_duration:<PnDTnHnMn.nS>"
        )
    return known.declared.show(value) or ""
