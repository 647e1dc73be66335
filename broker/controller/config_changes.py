"""Changes configurations while the broker runs: topics, brokers, groups, log levels.

Owns: how changes are checked and combined (`ConfigChange`, `apply_edits`), how they are recorded, and
acting on them. Invariants: one change at a time, so that two clients that change one resource do not undo
each other; a change is in force once its request has a response, and was recorded before; a resource is
changed as a whole or not at all, even if others fail. A topic that is deleted meanwhile stays
deleted, and a new topic of its name is another one: changes name the topic's id.
Does not: know Kafka's messages (the handlers do) or describe (`broker/settings/described_config.py`).
Source: Kafka's ConfigurationControlManager and ConfigAdminManager for the errors.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from lockstep.broker.controller.topics import Topics
from lockstep.broker.metadata.metadata_cache import MetadataCache, Topic
from lockstep.broker.metadata.metadata_image import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    WHOLE_CLUSTER,
    Command,
    configs_command,
    topic_configs_command,
)
from lockstep.broker.metadata.topic_names import check_name
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.process.log_text import printable
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings import dynamic_config
from lockstep.broker.settings.config import PROPERTIES, Settings
from lockstep.broker.settings.dynamic_config import (
    InvalidBrokerConfig,
    apply_changes,
    canonical_text,
    check_size,
    declaration,
    reject_fixed,
)
from lockstep.broker.settings.group_config import (
    GROUP_PROPERTIES,
    MAX_CONFIGURED_GROUPS,
    MAX_GROUP_NAME,
    InvalidGroupConfig,
    group_config,
    group_value,
)
from lockstep.broker.settings.log_levels import LEVELS, ROOT, levels, set_level
from lockstep.broker.settings.properties import ConfigError, Kind, Property
from lockstep.broker.settings.topic_config import (
    FIXED_AT_CREATION,
    TOPIC_PROPERTIES,
    InvalidTopicConfig,
    topic_config,
    topic_value,
    without_effect,
)
from lockstep.protocol.config_resources import ConfigOperation, ResourceType
from lockstep.protocol.errors import ErrorCode

log = logging.getLogger("lockstep.configs")

RESOURCES_AT_ONCE: Final = 100
"""The changes that share a commit; other requests are served before the next ones."""
MAX_MESSAGE: Final = 1_000
"""Characters of an error text: it quotes what the client sent, and a string of the wire has its limit."""
MAX_EDITS: Final = 1_000
"""Configurations one resource may name in one request: several times as many as Kafka has for any."""
NO_NODE: Final = -1
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True)
class ConfigEdit:
    """One configuration of one resource."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True)
class ConfigChange:
    """The change of one resource."""

    resource_type: int
    resource_name: str
    edits: Sequence[ConfigEdit]
    replaces: bool = False
    """True if unnamed configurations are reset (AlterConfigs)."""


@dataclass(frozen=True)
class _Plan:
    """A validated change: the command to record, and the action after it."""

    command: Command | None
    act: Callable[[], None]


class ConfigChanges:
    """Configuration on the node that leads group 0."""

    def __init__(self, cluster: MetadataCache, nodes: NodeRegistry, topics: Topics) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._topics = topics
        self._changing = asyncio.Lock()

    async def make(self, changes: Sequence[ConfigChange], validate_only: bool) -> list[RequestError | None]:
        """Executes each change, or only validates it; returns for each None or its error."""
        edited_names = Counter((change.resource_type, change.resource_name) for change in changes)
        outcomes: list[RequestError | None] = []
        async with self._changing:
            for first in range(0, len(changes), RESOURCES_AT_ONCE):
                step = changes[first : first + RESOURCES_AT_ONCE]
                outcomes += await self._make(step, edited_names, validate_only)
        return outcomes

    async def _make(
        self,
        changes: Sequence[ConfigChange],
        edited_names: Mapping[tuple[int, str], int],
        validate_only: bool,
    ) -> list[RequestError | None]:
        outcomes: list[RequestError | None] = [None] * len(changes)
        plans: dict[int, _Plan] = {}
        for index, change in enumerate(changes):
            try:
                if edited_names[change.resource_type, change.resource_name] > 1:
                    raise _invalid("Each resource must appear at most once.")
                plans[index] = self._plan(change)
            except RequestError as rejection:
                outcomes[index] = rejection
        if validate_only:
            await asyncio.sleep(0)
            return outcomes
        commands = [plan.command for plan in plans.values() if plan.command is not None]
        try:
            if commands:
                await self._topics.record_configs(commands)
            else:
                await asyncio.sleep(0)
        except RequestError as rejection:
            return [rejection if index in plans else outcome for index, outcome in enumerate(outcomes)]
        for index, plan in plans.items():
            try:
                plan.act()
            except RequestError as rejection:
                outcomes[index] = rejection
        return outcomes

    # --- one resource -------------------------------------------------------------------------------------

    def _plan(self, change: ConfigChange) -> _Plan:
        """Raises RequestError."""
        if len(change.edits) > MAX_EDITS:
            raise _invalid(f"{len(change.edits)} configurations of one resource, at most {MAX_EDITS}")
        match change.resource_type:
            case ResourceType.TOPIC:
                return self._plan_topic(change)
            case ResourceType.BROKER:
                return self._plan_broker(change)
            case ResourceType.GROUP:
                return self._plan_group(change)
            case ResourceType.CLIENT_METRICS:
                return _plan_client_metrics(change)
            case ResourceType.BROKER_LOGGER if not change.replaces:
                return self._plan_loggers(change)
        raise _invalid(f"Unknown resource type {change.resource_type}")

    def _plan_topic(self, change: ConfigChange) -> _Plan:
        name = change.resource_name
        if not name:
            raise _invalid("Default topic resources are not allowed.")
        check_name(name)
        topic = self._cluster.topic(name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        self._topics.check_alterable(topic)
        config = topic.config

        def value_in_force(config_name: str) -> str | None:
            attribute, declared = TOPIC_PROPERTIES[config_name]
            return declared.show(getattr(config, attribute))

        invalid = invalid_untouched(self._cluster.image.topics[topic.topic_id].overrides, change, topic_value)
        current = {each: text for each, text in config.overrides.items() if each not in invalid}
        texts = apply_edits(current, change, lambda each: _second(TOPIC_PROPERTIES.get(each)), value_in_force)
        for fixed in (*FIXED_AT_CREATION, *(["cleanup.policy"] if topic.is_internal else [])):
            if change.replaces and fixed in current:
                texts.setdefault(fixed, current[fixed])
            if texts.get(fixed) != current.get(fixed):
                raise RequestError(
                    ErrorCode.INVALID_CONFIG, f"{fixed} of {name} cannot be changed after the creation"
                )
        try:
            new = topic_config(texts, self._cluster.settings)
        except InvalidTopicConfig as error:
            raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from None
        for each in texts:
            attribute, declared = TOPIC_PROPERTIES[each]
            texts[each] = declared.show(getattr(new, attribute)) or ""
        return _Plan(
            topic_configs_command(topic.topic_id, {**texts, **invalid}),
            partial(self._act_on_topic, topic, dict(config.overrides)),
        )

    def _act_on_topic(self, topic: Topic, former: Mapping[str, str]) -> None:
        self._topics.check_alterable(topic)
        log.info("topic %s: configured: %s", topic.name, _log_text(topic.config.overrides))
        for line in without_effect(topic.config.overrides, former):
            log.warning("topic %s: %s", topic.name, line)

    def _plan_broker(self, change: ConfigChange) -> _Plan:
        settings = self._cluster.settings
        node_id = settings.node_id
        if change.resource_name != WHOLE_CLUSTER:
            check_registered(
                change.resource_name,
                self._nodes.registered_ids(),
                "Node",
                f"Unexpected broker id, expected {node_id},",
            )
        for_all = change.resource_name == WHOLE_CLUSTER
        name = WHOLE_CLUSTER if for_all else str(int(change.resource_name))
        # All that is recorded: what this node cannot follow is not to vanish unseen for the others.
        current = self._cluster.image.configs.get((BROKER_CONFIGS, name), {})
        try:
            set_now = [each.name for each in change.edits if each.operation != ConfigOperation.DELETE]
            reject_fixed(set_now, for_all=for_all)
            invalid = invalid_untouched(current, change, canonical_text)
            texts = apply_edits(
                {each: text for each, text in current.items() if each not in invalid},
                change,
                declaration,
                partial(_broker_value, settings),
            )
            texts = {each: canonical_text(each, text) for each, text in texts.items()}
            check_size(texts)
            changed = apply_changes(settings, *((texts, {}) if for_all else ({}, texts)))
            if name == str(node_id):
                for check in self._cluster.settings_checks:
                    check(changed)
        except (InvalidBrokerConfig, ConfigError) as error:
            raise _invalid(str(error)) from None
        command = configs_command(BROKER_CONFIGS, name, {**texts, **invalid})
        return _Plan(command, partial(_act_on_broker, name, texts, dict(current)))

    def _plan_group(self, change: ConfigChange) -> _Plan:
        name = change.resource_name
        if not name:
            raise _invalid("Default group resources are not allowed.")
        configs = self._cluster.image.configs
        current = configs.get((GROUP_CONFIGS, name), {})
        invalid = invalid_untouched(current, change, group_value)
        texts = apply_edits(
            {each: text for each, text in current.items() if each not in invalid},
            change,
            lambda each: GROUP_PROPERTIES[each].declared if each in GROUP_PROPERTIES else None,
            lambda each: None,  # no list among them
        )
        try:
            texts = {**group_config(texts), **invalid}
        except InvalidGroupConfig as error:
            raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if texts and not current:
            configured = len(configs)  # one or two of them are brokers'
            if configured >= MAX_CONFIGURED_GROUPS or len(name) > MAX_GROUP_NAME:
                raise RequestError(
                    ErrorCode.POLICY_VIOLATION,
                    f"{configured} groups are configured; at most {MAX_CONFIGURED_GROUPS} can be, with names "
                    f"of at most {MAX_GROUP_NAME} characters",
                )
        command = configs_command(GROUP_CONFIGS, name, texts) if texts != current else None
        return _Plan(command, lambda: None)

    def _plan_loggers(self, change: ConfigChange) -> _Plan:
        node_id = self._cluster.settings.node_id
        check_node(change.resource_name, node_id, "Node", f"Unexpected node id. Expected {node_id},")
        _check_edits(change)
        declared_property = levels()
        for edit in change.edits:
            if edit.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
                operation = ConfigOperation(edit.operation).name
                raise _invalid(f"{operation} operation is not allowed for the BROKER_LOGGER resource")
            if edit.name not in declared_property:
                raise RequestError(ErrorCode.INVALID_CONFIG, f"Logger {edit.name} does not exist!")
            if edit.operation == ConfigOperation.SET and edit.value not in LEVELS:
                raise RequestError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {edit.name} to {edit.value} as it is not a supported log "
                    f"level. Valid log levels are {', '.join(sorted(LEVELS))}",
                )
            if edit.operation == ConfigOperation.DELETE and edit.name == ROOT:
                raise _invalid("Removing the log level of the root logger is not allowed")
        return _Plan(None, partial(_set_levels, change.edits))


def _act_on_broker(name: str, texts: Mapping[str, str], former: Mapping[str, str]) -> None:
    subject = f"broker {name}" if name else "all brokers"
    logged = {each: dynamic_config.value_for_log(each, text) for each, text in texts.items()}
    log.info("%s: configured: %s", subject, _log_text(logged))
    for line in dynamic_config.without_effect(texts, former):
        log.warning("%s: %s", subject, line)


def _broker_value(settings: Settings, name: str) -> str | None:
    """The value in force of a list setting, to which APPEND and SUBTRACT apply if none is stored."""
    if name not in PROPERTIES:
        return None
    attribute, declared = PROPERTIES[name]
    return declared.show(getattr(settings, attribute))


def apply_edits(
    current: Mapping[str, str],
    change: ConfigChange,
    declared: Callable[[str], Property | None],
    value_in_force: Callable[[str], str | None],
) -> dict[str, str]:
    """The overrides of a resource after `change`, unchecked.

    `declared` gives a configuration's declaration, None for an unknown name; `value_in_force` its value in
    force, what a list that the resource does not set itself is appended to. Raises RequestError.
    """
    _check_edits(change)
    texts = {} if change.replaces else dict(current)
    for edit in change.edits:
        if edit.operation == ConfigOperation.DELETE:
            texts.pop(edit.name, None)
        elif edit.operation == ConfigOperation.SET:
            texts[edit.name] = edit.value or ""
        else:
            declared_property = declared(edit.name)
            if declared_property is None or declared_property.kind is not Kind.LIST:
                problem = f"Can't {ConfigOperation(edit.operation).name} to key {edit.name}"
                raise RequestError(ErrorCode.INVALID_CONFIG, f"{problem} because its type is not LIST.")
            items = _items(texts[edit.name] if edit.name in texts else value_in_force(edit.name))
            edited_names = _items(edit.value)
            if edit.operation == ConfigOperation.APPEND:
                items += [item for item in edited_names if item not in items]
            else:
                items = [item for item in items if item not in edited_names]
            texts[edit.name] = ",".join(items)
    return texts


def invalid_untouched(
    recorded: Mapping[str, str], change: ConfigChange, check_value: Callable[[str, str], object]
) -> dict[str, str]:
    """The recorded configurations that `change` does not touch and that would be rejected today.

    An earlier version, or a node with other settings, has recorded them. They stay recorded and do not make
    the change of another configuration fail (KAFKA-19851). `check_value` raises ValueError for an invalid
    one.
    """
    if change.replaces:
        return {}
    touched = {edit.name for edit in change.edits}
    invalid = {}
    for name, text in recorded.items():
        if name not in touched:
            try:
                check_value(name, text)
            except ValueError:
                invalid[name] = text
    return invalid


def check_node(name: str, node_id: int, noun: str, wrong_id_text: str) -> None:
    """A resource of this node bears its id. Raises RequestError.

    `noun` is Kafka's word for the name here; `wrong_id_text` begins the error for another id.
    """
    if not _NUMBER.fullmatch(name):
        raise _invalid(f"{noun} id must be an integer, but it is: {name[:64]}")
    if int(name) != node_id:
        raise _invalid(f"{wrong_id_text} but received {name[:64]}")


def check_registered(name: str, node_ids: Sequence[int], noun: str, wrong_id_text: str) -> None:
    """Check as `check_node`, for any node of the cluster. Raises RequestError."""
    if not _NUMBER.fullmatch(name) or int(name) not in node_ids:
        check_node(name, NO_NODE, noun, wrong_id_text)


def _plan_client_metrics(change: ConfigChange) -> _Plan:
    """There are no subscriptions: deleting one changes nothing."""
    if not change.resource_name:
        raise _invalid("Subscription name can't be empty")
    _check_edits(change)
    if any(edit.operation != ConfigOperation.DELETE for edit in change.edits):
        raise _invalid("Clients' metrics are not collected by this broker: there is nothing to subscribe to")
    return _Plan(None, lambda: None)


def _check_edits(change: ConfigChange) -> None:
    names = Counter(edit.name for edit in change.edits)
    if len(names) < len(change.edits):
        raise _invalid("Error due to duplicate config keys")
    for edit in change.edits:
        if not 0 <= edit.operation <= max(ConfigOperation):
            raise _invalid(f"Unknown operation type {edit.operation}")
    nulls = [
        edit.name for edit in change.edits if edit.value is None and edit.operation != ConfigOperation.DELETE
    ]
    if nulls:
        raise _invalid(f"Null value not supported for : {','.join(nulls)}")


def _set_levels(edits: Sequence[ConfigEdit]) -> None:
    for edit in edits:
        set_level(edit.name, edit.value if edit.operation == ConfigOperation.SET else None)
        log.info("log level of %s: %s", edit.name, levels()[edit.name])


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


def _second(pair: tuple[str, Property] | None) -> Property | None:
    return pair[1] if pair is not None else None


def _log_text(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{printable(name)}={printable(text)}" for name, text in texts.items()) or "defaults"


def _invalid(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message)
