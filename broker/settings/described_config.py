"""Configurations as DescribeConfigs reports them: value, source, synonyms.

Owns: `DescribedConfig` and one function per type of resource. The order of synonyms and which of
them are left out are Kafka's (ConfigHelper, DynamicBrokerConfig.brokerConfigSynonyms).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lockstep.broker.settings.config import PROPERTIES, Settings
from lockstep.broker.settings.dynamic_config import CHANGEABLE, declaration
from lockstep.broker.settings.group_config import GROUP_PROPERTIES
from lockstep.broker.settings.log_levels import levels
from lockstep.broker.settings.properties import Kind, Property
from lockstep.broker.settings.security_settings import declared_for_listener
from lockstep.broker.settings.topic_config import (
    BROKER_SYNONYMS,
    FIXED_AT_CREATION,
    TOPIC_PROPERTIES,
    TopicConfig,
)
from lockstep.protocol.config_resources import ConfigSource

Synonym = tuple[str, str | None, int]
"""Name, value, source."""


class DescribedConfig:
    """One configuration as DescribeConfigs and CreateTopics report it."""

    __slots__ = ("declared", "is_sensitive", "read_only", "source", "synonyms", "value")

    def __init__(
        self,
        declared: Property,
        value: str | None,
        synonyms: list[Synonym],
        *,
        read_only: bool = False,
        source: int | None = None,
        is_sensitive: bool = False,
    ) -> None:
        self.declared = declared
        self.value = value
        self.source = source or (synonyms[0][2] if synonyms else ConfigSource.DEFAULT)
        self.synonyms = synonyms
        """The one in force first."""
        self.read_only = read_only
        self.is_sensitive = is_sensitive
        """True if the value is left out because it may be a secret."""


_DEFAULTS: Final = {name: declared.show(declared.default) for name, (_, declared) in PROPERTIES.items()}
_ALTERNATIVES: Final = {each: names for names in BROKER_SYNONYMS.values() for each in names}
"""Broker setting -> the settings of which the first that is set counts, itself among them."""

_CLIENT_METRICS: Final = (
    Property("interval.ms", Kind.INT, 300_000, "How often clients are to push their metrics."),
    Property("match", Kind.LIST, (), "Which clients are to push metrics."),
    Property("metrics", Kind.LIST, (), "Which metrics clients are to push."),
)


def broker_synonyms(name: str, settings: Settings) -> list[Synonym]:
    """The sources of a broker setting's value, the strongest first."""
    names = _ALTERNATIVES.get(name, (name,))
    found: list[Synonym] = []
    for texts, source in (
        (settings.dynamic_node, ConfigSource.DYNAMIC_BROKER),
        (settings.dynamic_cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER),
    ):
        found += [(each, texts[each], source) for each in names if each in texts]
    for each in names:
        if each in settings.explicit:
            declared = PROPERTIES[each][1]
            text = declared.show(declared.parse(settings.explicit[each]))
            found.append((each, text, ConfigSource.STATIC_BROKER))
    found += [
        (each, text, ConfigSource.DEFAULT) for each in names if (text := _DEFAULTS.get(each)) is not None
    ]
    while found and found[0][0] != name:  # Kafka leaves out the synonyms before the name itself
        del found[0]
    return found


def describe_topic(config: TopicConfig, settings: Settings) -> list[DescribedConfig]:
    """Every configuration of a topic, by name."""
    described = []
    for name, (attribute, declared) in sorted(TOPIC_PROPERTIES.items()):
        if declared.is_internal and name not in config.overrides:
            continue
        value = declared.show(getattr(config, attribute))
        synonyms = broker_synonyms(BROKER_SYNONYMS[name][0], settings) if name in BROKER_SYNONYMS else []
        if name in config.overrides:
            synonyms.insert(0, (name, value, ConfigSource.TOPIC))
        described.append(DescribedConfig(declared, value, synonyms, read_only=name in FIXED_AT_CREATION))
    return described


def describe_broker(settings: Settings) -> list[DescribedConfig]:
    """Every setting of this broker, and what is stored for it without effect, by name."""
    found = [
        _describe(
            declared,
            declared.show(getattr(settings, attribute)),
            broker_synonyms(name, settings),
            read_only=name not in CHANGEABLE,
        )
        for name, (attribute, declared) in PROPERTIES.items()
    ]
    for name, text in settings.listener_texts.items():
        of_listener = declared_for_listener(name)
        if of_listener is not None and name not in settings.dynamic_node:
            found.append(_describe(of_listener, text, [(name, text, ConfigSource.STATIC_BROKER)]))
    stored = {**settings.dynamic_cluster, **settings.dynamic_node}
    found += [
        _describe_stored(name, stored[name], broker_synonyms(name, settings))
        for name in stored.keys() - PROPERTIES.keys()
    ]
    return sorted(found, key=lambda each: each.declared.name)


def describe_cluster_default(settings: Settings) -> list[DescribedConfig]:
    """The changes for all brokers, by name."""
    return [
        _describe_stored(
            name,
            text,
            [
                each
                for each in broker_synonyms(name, settings)
                if each[2] == ConfigSource.DYNAMIC_DEFAULT_BROKER
            ],
        )
        for name, text in sorted(settings.dynamic_cluster.items())
    ]


def _describe_stored(name: str, text: str, synonyms: list[Synonym]) -> DescribedConfig:
    """A setting that was changed while running; the value of a possible secret is left out, as in Kafka."""
    declared = declaration(name)
    assert declared is not None, name
    return _describe(declared, text, synonyms)


def _describe(
    declared: Property, text: str | None, synonyms: list[Synonym], *, read_only: bool = False
) -> DescribedConfig:
    """A setting of a broker, without the value of a password and its synonyms."""
    if declared.kind is not Kind.PASSWORD:
        return DescribedConfig(declared, text, synonyms, read_only=read_only)
    hidden: list[Synonym] = [(each, None, source) for each, _, source in synonyms]
    return DescribedConfig(declared, None, hidden, read_only=read_only, is_sensitive=True)


def describe_group(texts: Mapping[str, str]) -> list[DescribedConfig]:
    """Every configuration of a group that sets `texts`, by name."""
    described = []
    for name, group_property in sorted(GROUP_PROPERTIES.items()):
        if group_property.declared.is_internal and name not in texts:
            continue
        default = group_property.declared.show(group_property.declared.default)
        synonyms: list[Synonym] = [(group_property.broker_name, default, ConfigSource.DEFAULT)]
        if name in texts:
            synonyms.insert(0, (name, texts[name], ConfigSource.GROUP))
        described.append(DescribedConfig(group_property.declared, texts.get(name, default), synonyms))
    return described


def describe_loggers() -> list[DescribedConfig]:
    """The level of every logger, by name."""
    return [
        DescribedConfig(Property(name, Kind.UNKNOWN, None, ""), level, [], source=ConfigSource.BROKER_LOGGER)
        for name, level in levels().items()
    ]


def describe_client_metrics() -> list[DescribedConfig]:
    """The configuration of a subscription to clients' metrics: the defaults, as none can be created."""
    return [DescribedConfig(each, each.show(each.default), []) for each in _CLIENT_METRICS]
