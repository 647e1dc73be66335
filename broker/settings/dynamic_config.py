"""Broker settings that may be changed while the broker runs, and what is in force then.

Owns: their names, and `apply_changes`: the settings of the start with the changes made since on top, those
for this node before those for the whole cluster. Invariants: a setting with an effect is changeable only if
Kafka lets it be changed too and it takes effect here at once; none of them names an address, a class or a
module, nor a path but those of a listener's key and trust store, as in Kafka, and none can shut out the
client that would change it back. A setting that only warns in a properties file is no error here: Kafka's
settings without effect are stored and warned of, and so are at most MAX_FOREIGN unknown names that are not
misspelt (`suggestions.py`). Does not: store the changes (`broker/metadata/metadata_image.py` does) or record
them (`broker/controller/config_changes.py`). Source: Kafka's DynamicBrokerConfig.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from lockstep.broker.process.log_text import printable
from lockstep.broker.settings.config import PROPERTIES, Settings
from lockstep.broker.settings.foreign_names import OWN_PREFIX
from lockstep.broker.settings.kafka_names import UNUSED_KAFKA_NAMES
from lockstep.broker.settings.properties import ConfigError, Kind, Property
from lockstep.broker.settings.security_settings import declared_for_listener, split_listener_name
from lockstep.broker.settings.settings_checks import check
from lockstep.broker.settings.settings_reader import HAVE_EFFECT
from lockstep.broker.settings.stored_settings import PER_BROKER, PER_LISTENER, STORED
from lockstep.broker.settings.suggestions import Suggestions
from lockstep.broker.settings.topic_config import BROKER_SYNONYMS
from lockstep.broker.settings.topic_default_settings import BROKERS_WITHOUT_EFFECT

CHANGEABLE: Final = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "group.consumer.assignment.interval.ms",
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
        "producer.id.expiration.ms",
        "unclean.leader.election.enable",
    }
)
_MIN_WHILE_RUNNING: Final = {"max.connections": 1, "max.connections.per.ip": 1}
"""Minimum values while running, higher than at the start: with 0 no client could connect to change it back,
not even after a restart."""
_SUGGESTIONS: Final = Suggestions(
    {name: name for name in PROPERTIES}
    | {name: theirs[0] for name, theirs in BROKER_SYNONYMS.items() if name not in PROPERTIES}
)
"""The suggestions also know the topics' names of settings."""


_FIXED: Final = frozenset({*HAVE_EFFECT, *UNUSED_KAFKA_NAMES})
"""Settings that are read at a start only, unless they are in CHANGEABLE or STORED."""
MAX_FOREIGN: Final = 50
"""LIMIT. Unknown names that one resource may store: each is kept in memory and in every checkpoint."""
MAX_FOREIGN_CHARACTERS: Final = 4_096
"""LIMIT. Characters of such a name and its value together."""


def is_reloadable(name: str) -> bool:
    """True for a listener's keys and certificates, which are read again at each change of such a setting."""
    split = split_listener_name(name)
    return split is not None and split[1] in PER_LISTENER


class InvalidBrokerConfig(ValueError):
    """A change that is not possible; the text names it."""


def declaration(name: str) -> Property | None:
    """The declaration of a setting that may be changed while the broker runs; None for any other.

    The value of an unknown name is treated as a password, as in Kafka: it may be a secret.
    """
    if name in CHANGEABLE:
        return PROPERTIES[name][1]
    if name in STORED:
        return STORED[name]
    if name in _FIXED:
        return None
    if (of_listener := declared_for_listener(name)) is not None:
        return of_listener if is_reloadable(name) else None
    return Property(name, Kind.PASSWORD, None, "Neither a setting of Lockstep nor of Kafka.")


def canonical_text(name: str, text: str) -> str:
    """The value of a changeable setting the way it is stored and shown. Raises InvalidBrokerConfig."""
    declared = declaration(name)
    if declared is None:
        raise InvalidBrokerConfig(_not_changeable([name]))
    minimum = _MIN_WHILE_RUNNING.get(name)
    try:
        value = declared.parse(text)
        if minimum is not None and value < minimum:
            raise ConfigError(name, text, f"must be at least {minimum} while running")
    except ConfigError as error:
        raise InvalidBrokerConfig(_error_text(error)) from None
    return declared.show(value) or ""


def apply_changes(start_settings: Settings, cluster: Mapping[str, str], node: Mapping[str, str]) -> Settings:
    """The settings of the start with these changes on top, values as `canonical_text` gives them.

    Raises InvalidBrokerConfig.
    """
    values = {}
    for name, text in {**cluster, **node}.items():
        normal_text = canonical_text(name, text)
        if name in PROPERTIES:
            attribute, declared = PROPERTIES[name]
            values[attribute] = declared.parse(normal_text)
    settings = replace(start_settings, **values, dynamic_cluster=dict(cluster), dynamic_node=dict(node))
    try:
        check(settings)
    except ConfigError as error:
        raise InvalidBrokerConfig(_error_text(error)) from None
    return settings


def apply_accepted(
    start_settings: Settings, cluster: Mapping[str, str], node: Mapping[str, str]
) -> tuple[Settings, list[str]]:
    """`apply_changes` of changes accepted earlier, and why some of them do not hold any more: alone, or
    beside the others, which may have been accepted on other nodes. Raises nothing: a node that fails on a
    recorded change could not be corrected."""
    accepted: tuple[dict[str, str], dict[str, str]] = ({}, {})
    settings, problems = apply_changes(start_settings, *accepted), []
    for changes, accepted_texts in zip((cluster, node), accepted, strict=True):
        for name, text in changes.items():
            accepted_texts[name] = text
            try:
                settings = apply_changes(start_settings, *accepted)
            except InvalidBrokerConfig as error:
                del accepted_texts[name]
                problems.append(str(error))
    return settings, problems


def reject_fixed(names: Iterable[str], *, for_all: bool = False) -> None:
    """Raises InvalidBrokerConfig for a name that cannot be changed while running, or that is misspelt.

    for_all: the change is of the cluster-wide default, for which per-broker settings are rejected, too.
    Source: Kafka's DynamicBrokerConfig.validateConfigs.
    """
    given = set(names)
    foreign = _checked_foreign(given)
    misspelled = {name for name in foreign if name.lower().startswith(OWN_PREFIX) or _suggestion(name)}
    fixed = sorted(
        name
        for name in given
        if name in misspelled or (declaration(name) is None and name not in PER_LISTENER)
    )
    if fixed:
        raise InvalidBrokerConfig(_not_changeable(fixed))
    if only_per_listener := sorted(given & PER_LISTENER):
        raise InvalidBrokerConfig(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(only_per_listener)}]"
        )
    per_broker = sorted(name for name in given if name in PER_BROKER or is_reloadable(name))
    if for_all and per_broker:
        raise InvalidBrokerConfig(
            f"Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(per_broker)}]"
        )


def check_size(texts: Mapping[str, str]) -> None:
    """Raises InvalidBrokerConfig for more or longer settings without effect than one resource may store."""
    foreign = _checked_foreign(texts)
    for name in {*foreign, *(STORED.keys() & texts.keys())}:
        if len(name) + len(texts[name]) > MAX_FOREIGN_CHARACTERS:
            raise InvalidBrokerConfig(
                f"{printable(name)}: longer than {MAX_FOREIGN_CHARACTERS} characters, without effect here"
            )


def without_effect(texts: Mapping[str, str], former: Mapping[str, str]) -> list[str]:
    """At most one warning: the settings of `texts` that differ from `former` and have no effect here."""
    new = {name: text for name, text in texts.items() if former.get(name) != text}
    unused = [
        name
        for name, text in sorted(new.items())
        if (name not in PROPERTIES and not is_reloadable(name))
        or (name in BROKERS_WITHOUT_EFFECT and PROPERTIES[name][1].parse(text) != PROPERTIES[name][1].default)
    ]
    return [f"kept, and without effect here: {', '.join(map(printable, unused))}"] if unused else []


def value_for_log(name: str, text: str) -> str:
    """The value, or `[hidden]` if it is a password."""
    declared = PROPERTIES[name][1] if name in PROPERTIES else declaration(name)
    return "[hidden]" if declared is not None and declared.kind is Kind.PASSWORD else text


def _foreign(names: Iterable[str]) -> list[str]:
    return [
        name
        for name in names
        if name not in STORED and name not in _FIXED and declared_for_listener(name) is None
    ]


def _checked_foreign(names: Iterable[str]) -> list[str]:
    """The unknown names among these. Raises InvalidBrokerConfig for more than one resource may store."""
    foreign = _foreign(names)
    if len(foreign) > MAX_FOREIGN:
        raise InvalidBrokerConfig(f"{len(foreign)} unknown names, at most {MAX_FOREIGN} are stored")
    return foreign


def _suggestion(name: str) -> str | None:
    """The setting whose name differs by one slip from an unknown name. A start compares more closely, which
    costs a request on the event loop too much (`foreign_names.py`)."""
    return _SUGGESTIONS.suggest(name.replace("_", ".").replace("-", "."))


def _not_changeable(names: Sequence[str]) -> str:
    """Kafka's error text, and a suggestion for the first unknown name."""
    text = f"Cannot update these configs dynamically: [{', '.join(map(printable, names))}]"
    foreign = _foreign(names)
    suggestion = _suggestion(foreign[0]) if foreign else None
    if suggestion is None:
        return text
    restart_hint = "" if suggestion in CHANGEABLE else f" {suggestion} is set only at a start"
    return f"{text}; did you mean {suggestion}?{restart_hint}"


def _error_text(error: ConfigError) -> str:
    return f"Invalid value {error.value} for configuration {error.key}: {error.problem}"
