"""Broker settings that may be changed while the broker runs, and what is in force then.

Owns: their names, and `in_force`: the settings of the start with the changes made since on top, those for
this node before those for the whole cluster. Invariants: a setting is changeable only if Kafka lets it be
changed too and it takes effect here at once, or has none (`topic_default_settings.py`); none of them names an
address, a path, a class or a module, and none can shut out whoever would change it back.
Does not: store the changes (`cluster_image.py` does) or spread them (`config_changes.py`).
Source: Kafka's DynamicBrokerConfig.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from broker.settings.config import PROPERTIES, Settings, check
from broker.settings.near_names import NearNames
from broker.settings.properties import ConfigError
from broker.settings.topic_config import BROKER_SYNONYMS

CHANGEABLE: Final = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleanup.policy",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.type",
        "log.preallocate",
        "log.remote.copy.lag.bytes",
        "log.remote.copy.lag.ms",
        "log.retention.bytes",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "log.segment.bytes",
        "log.segment.delete.delay.ms",
        "max.connections",
        "max.connections.per.ip",
        "max.decompressed.message.bytes",
        "message.max.bytes",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
_LEAST: Final = {"max.connections": 1, "max.connections.per.ip": 1}
"""Higher than at the start: with 0 nobody could connect to change it back, not even after a restart."""
_NEAR: Final = NearNames(
    {name: name for name in PROPERTIES}
    | {name: theirs[0] for name, theirs in BROKER_SYNONYMS.items() if name not in PROPERTIES}
)
"""Also by the topics' names for them."""


class InvalidBrokerConfig(ValueError):
    """A change that is not possible; the text names it."""


def normal(name: str, text: str) -> str:
    """The value of a changeable setting the way it is stored and shown. Raises InvalidBrokerConfig."""
    attribute_and_declaration = PROPERTIES.get(name)
    if attribute_and_declaration is None or name not in CHANGEABLE:
        raise InvalidBrokerConfig(_not_changeable([name]))
    declared = attribute_and_declaration[1]
    least = _LEAST.get(name)
    try:
        value = declared.parse(text)
        if least is not None and value < least:
            raise ConfigError(name, text, f"must be at least {least} while running")
    except ConfigError as error:
        raise InvalidBrokerConfig(_in_words(error)) from None
    return declared.show(value) or ""


def in_force(started: Settings, cluster: Mapping[str, str], node: Mapping[str, str]) -> Settings:
    """The settings of the start with these changes on top, values as `normal` gives them.

    Raises InvalidBrokerConfig.
    """
    values = {}
    for name, text in {**cluster, **node}.items():
        normal_text = normal(name, text)
        attribute, declared = PROPERTIES[name]
        values[attribute] = declared.parse(normal_text)
    settings = replace(started, **values, dynamic_cluster=dict(cluster), dynamic_node=dict(node))
    try:
        check(settings)
    except ConfigError as error:
        raise InvalidBrokerConfig(_in_words(error)) from None
    return settings


def still_in_force(
    started: Settings, cluster: Mapping[str, str], node: Mapping[str, str]
) -> tuple[Settings, list[str]]:
    """`in_force` of changes accepted earlier, and why some of them do not hold any more: alone, or beside the
    others, which may have been accepted on other nodes. Raises nothing: a node that cannot follow what is
    recorded could not even be told to change it back."""
    kept: tuple[dict[str, str], dict[str, str]] = ({}, {})
    settings, problems = in_force(started, *kept), []
    for changes, holding in zip((cluster, node), kept, strict=True):
        for name, text in changes.items():
            holding[name] = text
            try:
                settings = in_force(started, *kept)
            except InvalidBrokerConfig as error:
                del holding[name]
                problems.append(str(error))
    return settings, problems


def refuse_fixed(names: Iterable[str]) -> None:
    """Raises InvalidBrokerConfig where one of `names` cannot be changed while running."""
    fixed = sorted(set(names) - CHANGEABLE)
    if fixed:
        raise InvalidBrokerConfig(_not_changeable(fixed))


def _not_changeable(names: Sequence[str]) -> str:
    """Kafka's words, and what may have been meant by the first of them that there is not."""
    text = f"Cannot update these configs dynamically: [{', '.join(names)}]"
    unknown = next((name for name in names if name not in PROPERTIES), None)
    meant = None if unknown is None else _NEAR.meant(unknown)
    if meant is None:
        return text
    at_start = "" if meant in CHANGEABLE else f" {meant} is set at a start alone"
    return f"{text}; did you mean {meant}?{at_start}"


def _in_words(error: ConfigError) -> str:
    return f"Invalid value {error.value} for configuration {error.key}: {error.problem}"
