"""Settings from property names and their text.

Sources, later ones win: defaults, a properties file with Kafka's names, `--set key=value`, command-line flags
(`loader.py`). Names without effect here warn, all in one line; misspelt names (`foreign_names.py`) and bad
values stop the start, all named in one error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lockstep.broker.membership.placement import MAX_DATA_VOTERS
from lockstep.broker.settings.addresses import parse_listener
from lockstep.broker.settings.config import PLAINTEXT, PROPERTIES, Settings, is_controller_listener
from lockstep.broker.settings.foreign_names import (
    FORMER_NAMES,
    PROVIDERS,
    hint,
    is_misspelled,
    unused_names_warning,
)
from lockstep.broker.settings.kafka_names import UNUSED_KAFKA_NAMES
from lockstep.broker.settings.metrics_settings import SSL
from lockstep.broker.settings.peer_settings import PEERS_LISTENER
from lockstep.broker.settings.properties import ConfigError, Kind, raise_all
from lockstep.broker.settings.security_settings import (
    JAAS_CONFIG,
    SECURITY_PROPERTIES,
    declared_for_listener,
    in_lower_case,
    is_without_mechanism,
    split_listener_name,
)
from lockstep.broker.settings.settings_checks import REPLICATION_FACTORS, check
from lockstep.broker.settings.topic_default_settings import BROKERS_WITHOUT_EFFECT, WARNINGS_AT_START

_ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Kafka's older names, and those that they go by here; where both are there, as in Kafka: the numbers of a
node have to be the same, and of directories the second counts."""
_IGNORED_PREFIXES = ("listener.name.", "log4j.", f"{PROVIDERS}.")


HAVE_EFFECT: Final = (*PROPERTIES, *_ALIASES, PROVIDERS)
"""The names with an effect, to one of which an unknown name may be similar."""
_NAMES_WITHOUT_EFFECT: Final = frozenset({*UNUSED_KAFKA_NAMES, *FORMER_NAMES, PROVIDERS})
_NEEDED_LISTENERS: Final = (
    ("lockstep.peers", "this node is alone", ("lockstep.peers.listener", "lockstep.peers.tls")),
    (
        "lockstep.metrics.listener",
        "no metrics are served",
        ("lockstep.metrics.security.protocol", "lockstep.metrics.token"),
    ),
)
"""The setting that makes a listener, why others have no effect without it, and the others."""
_LISTENERS: Final = frozenset({"listeners", "advertised.listeners"})
"""Settings whose listeners are shown with the protocol, as in Kafka, even if it was left out."""


def from_texts(
    texts: Mapping[str, str], foreign: Collection[str] = (), unresolved: Sequence[ConfigError] = ()
) -> Settings:
    """Settings from property names and their text. Raises ConfigError, ConfigErrors for several: all mistakes
    in names and values, or, where there are none, all between settings.

    Args:
        foreign: names from a source that others write, too, as a properties file: an unknown one among them
            only warns unless it is misspelt; any other unknown name is an error.
        unresolved: errors in settings that are therefore not among `texts`, raised together with the others.
    """
    values: dict[str, Any] = {}
    listener_texts: dict[str, str] = {}
    explicit: dict[str, str] = {}
    warnings: list[str] = []
    errors = list(unresolved)
    unused: list[str] = []
    for name, text in resolve_aliases(texts, warnings).items():
        current_name = PROPERTIES.get(name)
        try:
            if (of_listener := declared_for_listener(name)) is not None:
                of_listener.parse(text)
                listener_texts[name] = text
            elif (right_name := in_lower_case(name)) is not None:
                warnings.append(_capitals_warning(name, text, right_name, name in foreign))
            elif current_name is None:
                _check_unknown(name, text, name in foreign)
                unused += [] if name.startswith(PROVIDERS) else [name]
            else:
                values[current_name[0]] = current_name[1].parse(text)
                explicit[name] = text
                warnings += _value_warnings(name, values[current_name[0]])
        except ConfigError as error:
            errors.append(error)
    raise_all(errors)
    if unused:
        warnings.append(unused_names_warning(unused))
    for name in _LISTENERS & explicit.keys():
        attribute = PROPERTIES[name][0]
        values[attribute] = tuple(str(parse_listener(each, name)) for each in values[attribute])
        explicit[name] = ",".join(values[attribute])
    warnings += _listener_warnings(explicit)
    for name in REPLICATION_FACTORS:
        if values.get(PROPERTIES[name][0], 0) > MAX_DATA_VOTERS:
            warnings.append(f"{name}={explicit[name]}: partitions have {MAX_DATA_VOTERS} replicas at most")
    settings = Settings(**values, listener_texts=listener_texts, explicit=explicit)
    check(settings)
    warnings += _unused_security(settings)
    warnings += settings.authorizer_warnings()
    warnings += _controller_warnings(settings)
    return replace(settings, warnings=tuple(warnings))


def _controller_warnings(settings: Settings) -> list[str]:
    """The warning of a start for listeners of Kafka's controllers."""
    found = [text for text in settings.listeners if is_controller_listener(settings, parse_listener(text))]
    if not found:
        return []
    return [
        f"listeners: {', '.join(found)} {'is' if len(found) == 1 else 'are'} not served: there is no "
        "controller listener here, nodes connect to each other by lockstep.peers"
    ]


def _listener_warnings(explicit: Mapping[str, str]) -> list[str]:
    """The warnings of a start for settings of a listener that this node does not have."""
    return [
        f"{name} has no effect without {listener}: {reason}"
        for listener, reason, names in _NEEDED_LISTENERS
        for name in names
        if explicit.get(name) and not explicit.get(listener)
    ]


def _capitals_warning(name: str, text: str, right_name: str, may_be_foreign: bool) -> str:
    """The warning of a start for a listener's own setting with capital letters in its name. Raises
    ConfigError, which shows no secret, where no other program can have written it."""
    if not may_be_foreign:
        declared = declared_for_listener(right_name)
        shown = "[hidden]" if declared is not None and declared.kind is Kind.PASSWORD else text
        raise ConfigError(name, shown, f"there is no such setting, write it in lower case: {right_name}")
    return f"{name} has no effect, as in Kafka: write it in lower case, {right_name}"


def _unused_security(settings: Settings) -> list[str]:
    """The warnings of a start for settings of encryption that no listener uses."""
    encrypted = {
        each.name.lower() for each in settings.client_listeners() if settings.protocol_of(each) != PLAINTEXT
    }
    if settings.uses_peer_tls:
        encrypted.add(PEERS_LISTENER.lower())
    if (metrics := settings.metrics_listener()) and settings.lockstep_metrics_security_protocol == SSL:
        encrypted.add(metrics.name.lower())
    unused = [name for name in SECURITY_PROPERTIES if name in settings.explicit and not encrypted]
    for name in settings.listener_texts:
        split = split_listener_name(name)
        if split is not None and split[0] not in encrypted:
            unused.append(name)
    found = [f"without effect: {', '.join(unused)} (no such listener is encrypted)"] if unused else []
    return found + [
        f"{name} has no effect, as in Kafka: write listener.name.LISTENER.MECHANISM.{JAAS_CONFIG}"
        for name in (*settings.explicit, *settings.listener_texts)
        if is_without_mechanism(name) and name not in unused
    ]


def _check_unknown(name: str, text: str, may_be_foreign: bool) -> None:
    """Raises ConfigError for an unknown name that may not be ignored."""
    if is_kafka_name_without_effect(name):
        return
    if not may_be_foreign or is_misspelled(name, HAVE_EFFECT):
        raise ConfigError(name, text, f"there is no such setting{hint(name, HAVE_EFFECT)}")


def is_kafka_name_without_effect(name: str) -> bool:
    """True if Kafka has or had a setting of this name, which has no effect here."""
    return name in _NAMES_WITHOUT_EFFECT or name.startswith(_IGNORED_PREFIXES)


def _value_warnings(name: str, value: object) -> list[str]:
    """The warnings of a start for a setting with this value."""
    if name in BROKERS_WITHOUT_EFFECT and value != PROPERTIES[name][1].default:
        return [f"{name} has no effect here: {BROKERS_WITHOUT_EFFECT[name]}"]
    return [f"{name} {WARNINGS_AT_START[name]}"] if name in WARNINGS_AT_START else []


def resolve_aliases(texts: Mapping[str, str], warnings: list[str]) -> dict[str, str]:
    """The settings of one source, by their current names. Raises ConfigError for a contradiction."""
    found = {}
    for name, text in texts.items():
        current_name = _ALIASES.get(name, name)
        current_text = texts.get(current_name, text) if current_name != name else text
        if current_text.strip() != text.strip():
            if current_name == "node.id":
                raise ConfigError(
                    current_name, current_text, f"not the same as {name}={text}: both number this node"
                )
            warnings.append(f"{name}={text} has no effect beside {current_name}={current_text}")
        found[current_name] = current_text
    return found
