"""The recorded metadata of the cluster: its id, nodes, topics, configurations, ACLs, quotas, producer id
blocks.

Owns: the commands of the metadata partition of group 0, one function each, and `MetadataImage`, which they
are replayed into; its listener is called at each change. Invariants: the image changes only in `replay`; a
topic id is never used again. Commands are small JSON objects: this is a cold path. Does not: know log groups,
or what clients may see (`metadata_cache.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from lockstep.broker.authorization.acl import AclBinding, InvalidAcl
from lockstep.broker.authorization.acl_cache import AclCache
from lockstep.broker.metadata.command_kind import kind_of
from lockstep.broker.metadata.metadata_version import (
    COMMAND_VERSIONS,
    FIRST_RECORDED_VERSION,
    LATEST_VERSION,
    UNREPORTED_VERSION,
    unsupported_text,
)
from lockstep.broker.metadata.quota_commands import QUOTA, apply_quota_command, quota_command
from lockstep.broker.metadata.token_commands import apply_token_command, token_command
from lockstep.broker.quotas.quota_table import QuotaTable
from lockstep.broker.security.delegation_tokens import DelegationTokenCache
from lockstep.broker.security.scram import Credential
from lockstep.broker.security.scram_credentials import ScramCredentials
from lockstep.broker.security.scram_users import ScramChange
from lockstep.protocol.records.record import iter_records
from lockstep.storage.types import Buffer, CorruptLog, DirectoryEntry, NewerFormat

METADATA_SECTION: Final = "cluster"
"""Its name in a checkpoint. Its version is the metadata version: the lowest that has what there is, so that
an earlier Lockstep reads it."""
BROKER_CONFIGS: Final = "broker"
GROUP_CONFIGS: Final = "group"
WHOLE_CLUSTER: Final = ""
"""The name of all brokers."""

Command = dict[str, object]


Address = tuple[str, int]
"""Host and port."""
LAST_PORT: Final = 65535


class Changed(Enum):
    """The kind of change that a command made."""

    TOPIC = "topic"
    ACLS = "acls"
    CONFIGS = "configs"
    SCRAM = "scram"
    TOKENS = "tokens"
    QUOTAS = "quotas"
    NODES = "nodes"
    EVERYTHING = "everything"


@dataclass(frozen=True)
class NodeEntry:
    """A node of the cluster as it registered itself."""

    node_id: int
    listeners: Mapping[str, Address] = field(default_factory=dict)
    """The addresses for clients, by listener name."""
    peer: Address = ("", 0)
    """Its replication listener."""
    rack: str | None = None


class TopicState(Enum):
    """The state of a topic between the records that create and delete it."""

    CREATING = "creating"
    READY = "ready"
    DELETING = "deleting"


class TopicEntry:
    """A topic as group 0 recorded it."""

    __slots__ = ("groups", "growing", "name", "overrides", "state", "topic_id")

    def __init__(
        self, name: str, topic_id: bytes, groups: list[int], overrides: dict[str, str], state: TopicState
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.groups = groups
        """The log group of each partition."""
        self.growing: list[int] = []
        """The log groups of partitions to come, which are being opened."""
        self.overrides = overrides
        self.state = state


def cluster_command(cluster_id: str) -> Command:
    """The cluster has this id, for ever."""
    return {"do": "cluster", "id": cluster_id}


def node_command(node: NodeEntry) -> Command:
    """The node is part of the cluster and has these addresses."""
    return {
        "do": "node",
        "node": node.node_id,
        "listeners": {name: list(address) for name, address in node.listeners.items()},
        "peer": list(node.peer),
        "rack": node.rack,
    }


def parse_node(command: object) -> NodeEntry:
    """The entry of a `node_command` from any sender. Raises ValueError."""
    try:
        if not isinstance(command, dict) or command["do"] != "node":
            raise ValueError("not a node")
        node = _node(command)
    except (CorruptLog, LookupError, TypeError) as error:
        raise ValueError(f"not a node: {error!r}") from None
    if not all(0 < port <= LAST_PORT for _, port in (node.peer, *node.listeners.values())):
        raise ValueError("a port that does not exist")
    return node


def remove_node_command(node_id: int) -> Command:
    """A node is not part of the cluster any more."""
    return {"do": "gone", "node": node_id}


def place_command(placement: Mapping[int, Sequence[int]]) -> Command:
    """The nodes of log groups, the preferred leader of each first."""
    return {"do": "place", "groups": {str(group): list(nodes) for group, nodes in placement.items()}}


def start_reassignment_command(placement: Mapping[int, Sequence[int]]) -> Command:
    """Place groups, as `place_command`; until `finish_reassignment_command` clients see a reassignment."""
    return {"do": "move", "groups": {str(group): list(nodes) for group, nodes in placement.items()}}


def finish_reassignment_command(groups: Sequence[int]) -> Command:
    """Records that these log groups have finished their reassignment."""
    return {"do": "moved", "groups": list(groups)}


def create_command(entry: TopicEntry) -> Command:
    """The topic is being created: its partitions are being opened."""
    return {
        "do": "create",
        "topic": entry.name,
        "id": entry.topic_id.hex(),
        "groups": entry.groups,
        "configs": entry.overrides,
    }


def ready_command(topic_id: bytes) -> Command:
    """Every partition of the topic is open: clients may see it."""
    return {"do": "ready", "id": topic_id.hex()}


def delete_command(topic_id: bytes) -> Command:
    """The topic is deleted for clients; its partitions are being closed."""
    return {"do": "delete", "id": topic_id.hex()}


def deleted_command(topic_id: bytes) -> Command:
    """Every partition of the topic is closed; nothing of it is left."""
    return {"do": "deleted", "id": topic_id.hex()}


def grow_command(topic_id: bytes, groups: list[int]) -> Command:
    """The topic is to get further partitions, in these log groups; none: it is not to grow after all."""
    return {"do": "grow", "id": topic_id.hex(), "groups": groups}


def grown_command(topic_id: bytes) -> Command:
    """Every further partition is open: clients may see them."""
    return {"do": "grown", "id": topic_id.hex()}


def topic_configs_command(topic_id: bytes, overrides: Mapping[str, str]) -> Command:
    """Sets the topic's own configurations, as a whole."""
    return {"do": "topic_configs", "id": topic_id.hex(), "configs": dict(overrides)}


def configs_command(kind: str, name: str, texts: Mapping[str, str]) -> Command:
    """Sets the configurations of a broker (or of all of them) or of a group, as a whole."""
    return {"do": "configs", "of": kind, "name": name, "configs": dict(texts)}


def scram_command(change: ScramChange, secret: bytes = b"") -> Command:
    """A SCRAM user has this credential, or none any more.

    Args: secret: the cluster's, for the salts of unknown users. An earlier Lockstep leaves it out.
    """
    command: Command = {"do": "scram", "mechanism": change.mechanism, "user": change.user}
    if secret:
        command["secret"] = secret.hex()
    return command if change.credential is None else command | _credential_texts(change.credential)


def producer_ids_command(next_producer_id: int) -> Command:
    """Records that producer ids below this one are allocated."""
    return {"do": "producer_ids", "next": next_producer_id}


def acl_command(acl: AclBinding) -> Command:
    """Adds an ACL."""
    return {"do": "acl", "acl": list(acl)}


def remove_acl_command(acl: AclBinding) -> Command:
    """Removes an ACL."""
    return {"do": "acl_gone", "acl": list(acl)}


class MetadataImage:
    """The state of the metadata records. A `StateMachine` of group 0."""

    __slots__ = (
        "acls",
        "changed",
        "cluster_id",
        "configs",
        "moving",
        "next_producer_id",
        "nodes",
        "placement",
        "quotas",
        "recorded_version",
        "scram",
        "supported_version",
        "tokens",
        "topics",
    )

    def __init__(self) -> None:
        self.changed: Callable[[Changed, bytes], None] = _ignore_change
        """The listener of changes: called with the kind of change and a topic id."""
        self.nodes: dict[int, NodeEntry] = {}
        self.placement: dict[int, tuple[int, ...]] = {}
        """The nodes of each log group, the preferred leader first; empty where a node is alone."""
        self.moving: dict[int, tuple[int, ...]] = {}
        """The former nodes of log groups that clients are reassigning, until the reassignment is complete."""
        self.cluster_id: str | None = None
        self.next_producer_id = 0
        self.topics: dict[bytes, TopicEntry] = {}
        self.configs: dict[tuple[str, str], dict[str, str]] = {}
        """The configurations of brokers and groups, by kind and name."""
        self.scram = ScramCredentials()
        self.acls = AclCache()
        self.tokens = DelegationTokenCache()
        self.quotas = QuotaTable()
        self.recorded_version = 0
        """The recorded metadata version; 0 for none."""
        self.supported_version = LATEST_VERSION
        """The highest metadata version of which every command is known here."""

    @property
    def metadata_version(self) -> int:
        """The metadata version whose commands the log may have: the recorded one, or the lowest that has what
        is there, where an earlier Lockstep recorded none."""
        sizes = {
            "quota": len(self.quotas),
            "token": len(self.tokens),
            "acl": len(self.acls),
            "scram": len(self.scram),
        }
        held = next((COMMAND_VERSIONS[each] for each, size in sizes.items() if size), UNREPORTED_VERSION)
        return max(self.recorded_version, held)

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        """Apply one committed batch of commands. Raises CorruptLog for a command it does not know,
        NewerFormat for a metadata version."""
        quotas_changed = False
        for record in iter_records(payload):
            command = json.loads(bytes(record.value or b"{}"))
            self._apply(command)
            quotas_changed |= command["do"] == QUOTA
        if quotas_changed:  # once for the batch: its listeners look at all throttled connections
            self.changed(Changed.QUOTAS, b"")

    def _apply(self, command: Command) -> None:
        match command:
            case {"do": "cluster", "id": str(cluster_id)}:
                self.cluster_id = self.cluster_id or cluster_id  # the first one stays
            case {
                "do": "create",
                "topic": str(name),
                "id": str(topic_id),
                "groups": groups,
                "configs": configs,
            }:
                created = TopicEntry(
                    name, bytes.fromhex(topic_id), _numbers(groups), _texts(configs), TopicState.CREATING
                )
                self.topics[created.topic_id] = created
                self.changed(Changed.TOPIC, created.topic_id)
            case {"do": "configs", "of": str(kind), "name": str(name), "configs": configs}:
                self.configs.pop((kind, name), None)
                if _texts(configs):
                    self.configs[kind, name] = _texts(configs)
                self.changed(Changed.CONFIGS, b"")
            case {"do": "node" | "gone" | "place" | "move" | "moved" | "metadata_version"}:
                self._apply_to_nodes(command)
                self.changed(Changed.NODES, b"")
            case {"do": "token" | "token_expiry" | "token_gone"}:
                apply_token_command(self.tokens, command)
                self.changed(Changed.TOKENS, b"")
            case {"do": "scram" | "acl" | "acl_gone" | "quota"}:
                self._apply_to_access(command)
            case {"do": "producer_ids", "next": int(next_producer_id)}:
                self.next_producer_id = max(self.next_producer_id, next_producer_id)
            case {"do": "deleted", "id": str(topic_id)}:
                self.topics.pop(bytes.fromhex(topic_id), None)
                self.changed(Changed.TOPIC, bytes.fromhex(topic_id))
            case {"id": str(topic_id)}:
                changed = self.topics.get(bytes.fromhex(topic_id))
                _apply_to_topic(command, changed)
                self.changed(Changed.TOPIC, bytes.fromhex(topic_id))
            case _:
                raise CorruptLog(f"unknown metadata command: {kind_of(command)}")

    def _apply_to_access(self, command: Command) -> None:
        """Apply a command about credentials, ACLs or quotas."""
        match command:
            case {"do": "quota"}:
                apply_quota_command(self.quotas, command)
            case {"do": "scram", "mechanism": str(mechanism), "user": str(user)}:
                self.scram.put(mechanism, user, _parse_credential(command) if "salt" in command else None)
                if isinstance(secret := command.get("secret"), str):
                    self.scram.secret = bytes.fromhex(secret)
                self.changed(Changed.SCRAM, b"")
            case {"do": "acl" | "acl_gone" as kind, "acl": list(parts)}:
                (self.acls.add if kind == "acl" else self.acls.remove)(_acl(parts))
                self.changed(Changed.ACLS, b"")
            case _:
                raise CorruptLog(f"unknown metadata command: {kind_of(command)}")

    def _apply_to_nodes(self, command: Command) -> None:
        """Apply a command about nodes, what they support, or placement."""
        match command:
            case {"do": "metadata_version", "version": int(version)}:
                self._check_supported(version)
                self.recorded_version = max(self.recorded_version, version)
            case {"do": "node", "node": int(node_id)}:
                self.nodes[node_id] = _node(command)
            case {"do": "gone", "node": int(node_id)}:
                self.nodes.pop(node_id, None)
            case {"do": "place", "groups": dict(groups)}:
                self._place(groups)
            case {"do": "move", "groups": dict(groups)}:
                origins = {group: self.moving.get(group, nodes) for group, nodes in self.placement.items()}
                for group in self._place(groups):
                    origin = origins.get(group, ())
                    if set(origin) != set(self.placement[group]):
                        self.moving[group] = origin
            case {"do": "moved", "groups": groups}:
                for group in _numbers(groups):
                    self.moving.pop(group, None)
            case _:
                raise CorruptLog(f"unknown metadata command: {kind_of(command)}")

    def _place(self, groups: Mapping[str, object]) -> list[int]:
        """Place groups; a new placement ends an earlier reassignment."""
        placed = {int(group): tuple(_numbers(ids)) for group, ids in groups.items()}
        for group, nodes in placed.items():
            if set(nodes) != set(self.placement.get(group, ())):
                self.moving.pop(group, None)
        self.placement.update(placed)
        return list(placed)

    def _check_supported(self, version: int) -> None:
        if version > self.supported_version:
            raise NewerFormat(unsupported_text(version, self.supported_version))

    def snapshot(self, time_ms: int) -> bytes:
        """The whole image, as JSON."""
        state: dict[str, object] = {
            "version": self.metadata_version,
            "cluster_id": self.cluster_id,
            "next_producer_id": self.next_producer_id,
            "topics": [
                [entry.name, entry.topic_id.hex(), entry.groups, entry.overrides, entry.state.value]
                for entry in self.topics.values()
            ],
            "growing": {
                entry.topic_id.hex(): entry.growing for entry in self.topics.values() if entry.growing
            },
            "configs": [[kind, name, texts] for (kind, name), texts in self.configs.items()],
            "nodes": [node_command(each) for each in self.nodes.values()],
            "placement": place_command(self.placement)["groups"],
            "moving": place_command(self.moving)["groups"],
        }
        if self.scram.secret:
            state["scram_secret"] = self.scram.secret.hex()
        if self.scram:
            state["scram"] = [
                scram_command(ScramChange(mechanism, user, credential))
                for (mechanism, user), credential in self.scram.items()
            ]
        if len(self.acls):
            state["acls"] = [list(acl) for acl in self.acls]
        if self.tokens:
            state["tokens"] = [token_command(each) for each in self.tokens.values()]
        if len(self.quotas):
            state["quotas"] = [
                quota_command(entity, key, value)
                for entity, values in self.quotas.items()
                for key, value in values.items()
            ]
        return json.dumps(state, separators=(",", ":")).encode()

    def restore(self, data: bytes) -> None:
        """Take over a snapshot; empty bytes are the empty image. NewerFormat."""
        self.cluster_id = None
        self.next_producer_id = 0
        self.topics = {}
        self.configs = {}
        self.nodes = {}
        self.placement = {}
        self.moving = {}
        self.scram.clear()
        self.acls.clear()
        self.tokens.clear()
        self.quotas.clear()
        self.recorded_version = 0
        if data:
            self._restore(json.loads(data))
        self.changed(Changed.EVERYTHING, b"")

    def _restore(self, state: dict[str, Any]) -> None:
        self._check_supported(state["version"])
        self.recorded_version = state["version"] if state["version"] >= FIRST_RECORDED_VERSION else 0
        self.cluster_id = state["cluster_id"]
        self.next_producer_id = state["next_producer_id"]
        for name, topic_id, groups, overrides, topic_state in state["topics"]:
            entry = TopicEntry(name, bytes.fromhex(topic_id), groups, overrides, TopicState(topic_state))
            self.topics[entry.topic_id] = entry
        for growing_id, added in state.get("growing", {}).items():
            self.topics[bytes.fromhex(growing_id)].growing = added
        for kind, name, texts in state.get("configs", ()):
            self.configs[kind, name] = texts
        for command in state.get("nodes", ()):
            self.nodes[command["node"]] = _node(command)
        for group, nodes in state.get("placement", {}).items():
            self.placement[int(group)] = tuple(nodes)
        for group, nodes in state.get("moving", {}).items():
            self.moving[int(group)] = tuple(nodes)
        for command in state.get("scram", ()):
            self.scram.put(command["mechanism"], command["user"], _parse_credential(command))
        self.scram.secret = bytes.fromhex(state.get("scram_secret", ""))
        for command in state.get("tokens", ()):
            apply_token_command(self.tokens, command)
        for command in state.get("quotas", ()):
            apply_quota_command(self.quotas, command)
        for parts in state.get("acls", ()):
            self.acls.add(_acl(parts))


def _apply_to_topic(command: Command, topic: TopicEntry | None) -> None:
    """Apply a command about one topic; a command about a deleted topic has no effect."""
    if topic is None:
        return
    match command:
        case {"do": "ready"}:
            topic.state = TopicState.READY
        case {"do": "delete"}:
            topic.state = TopicState.DELETING
        case {"do": "grow", "groups": groups}:
            topic.growing = _numbers(groups)
        case {"do": "grown"}:
            topic.groups, topic.growing = topic.groups + topic.growing, []
        case {"do": "topic_configs", "configs": configs}:
            topic.overrides = _texts(configs)
        case _:
            raise CorruptLog(f"unknown metadata command: {kind_of(command)}")


def _credential_texts(credential: Credential) -> Command:
    return {
        "salt": credential.salt.hex(),
        "stored_key": credential.stored_key.hex(),
        "server_key": credential.server_key.hex(),
        "iterations": credential.iterations,
    }


def _parse_credential(command: Command) -> Credential:
    match command:
        case {
            "salt": str(salt),
            "stored_key": str(stored_key),
            "server_key": str(server_key),
            "iterations": int(iterations),
        }:
            keys = bytes.fromhex(stored_key), bytes.fromhex(server_key)
            return Credential(bytes.fromhex(salt), *keys, iterations)
    raise CorruptLog("a SCRAM credential without its parts in a metadata command")


def _node(command: Command) -> NodeEntry:
    match command:
        case {
            "node": int(node_id),
            "listeners": dict(listeners),
            "peer": [str(host), int(port)],
            "rack": rack,
        }:
            parsed_listeners = {str(name): (str(each[0]), int(each[1])) for name, each in listeners.items()}
            return NodeEntry(node_id, parsed_listeners, (host, port), None if rack is None else str(rack))
    raise CorruptLog(f"unknown metadata command: {kind_of(command)}")


def _acl(parts: list[Any]) -> AclBinding:
    try:
        acl = AclBinding.of(parts)
        acl.check()
    except (InvalidAcl, TypeError, ValueError) as error:
        raise CorruptLog(f"not an ACL: {parts!r}: {error}") from None
    return acl


def _ignore_change(change: Changed, topic_id: bytes) -> None:
    """The listener before one is set: does nothing."""


def _numbers(value: object) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise CorruptLog(f"not a list of numbers in a metadata command: {value!r}")
    return value


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise CorruptLog(f"not a table of texts in a metadata command: {type(value).__name__}")
    return value
