"""Nodes of two versions in the `metadata` workload: which node is of an earlier Lockstep, and until when.

A node of an earlier one fails at a command that it does not know, as the product does. It is upgraded at some
start, and never goes back: the product rejects a node that does (`MetadataVersions.report`), and there are no
handshakes here. A node is connected where its group is open.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from lockstep.broker.controller.metadata_version_control import MetadataVersionControl
from lockstep.broker.metadata.metadata_cache import METADATA_TOPIC_ID
from lockstep.broker.metadata.metadata_image import Command, MetadataImage
from lockstep.broker.metadata.metadata_version import (
    COMMAND_VERSIONS,
    LATEST_VERSION,
    METADATA_VERSION,
    UNREPORTED_VERSION,
)
from lockstep.broker.peers.metadata_versions import MetadataVersions
from lockstep.protocol.records.record import iter_records
from lockstep.storage.types import Buffer, DirectoryEntry, NewerFormat
from tests.sim.node import State

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

OLDER_SHARE: Final = 0.5
UPGRADED_SHARE: Final = 0.1
"""Of the starts of an older node."""


class OlderImage(MetadataImage):
    """The metadata of an earlier Lockstep."""

    __slots__ = ()

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        for record in iter_records(payload):
            kind = json.loads(bytes(record.value or b"{}"))["do"]
            if COMMAND_VERSIONS[kind] > self.supported_version:
                raise NewerFormat(f"a node of an earlier version replays {kind}")
        super().replay(entry, payload, time_ms)


class OlderNodes:
    """The version of each node in each of its lives."""

    def __init__(self, world: World) -> None:
        self._random = world.random("versions")
        self._older = {node_id for node_id in world.nodes if self._random.random() < OLDER_SHARE}

    def image(self, node: Node) -> MetadataImage:
        """The machine of a life that begins now; for a check, which replays everything, the newest one."""
        if node.state is not State.STARTING or node.node_id not in self._older:
            return MetadataImage()
        if node.life > 1 and self._random.random() < UPGRADED_SHARE:
            self._older.discard(node.node_id)
            return MetadataImage()
        image = OlderImage()
        image.supported_version = UNREPORTED_VERSION
        return image


def image_of(node: Node) -> MetadataImage:
    """The metadata as a node has them."""
    image = node.machines.commit[METADATA_TOPIC_ID][1]
    assert isinstance(image, MetadataImage)
    return image


def control_of(node: Node, append: Callable[[Sequence[Command]], Awaitable[None]]) -> MetadataVersionControl:
    """The control of a node that leads, which knows what every node that is connected supports."""
    found = node.memory.get("version control")
    if found is None:
        versions = MetadataVersions(node.node_id, image_of(node))
        versions.is_connected = lambda node_id: node.world.nodes[node_id].group is not None
        found = node.memory["version control"] = versions, MetadataVersionControl(versions, append)
    versions, control = found
    for other in node.world.running():
        versions.report(other.node_id, image_of(other).supported_version)
    return control


def recorded_too_early(recorded: int, command: Mapping[str, Any]) -> tuple[int, bool]:
    """The metadata version after a command, and whether the command is of a higher one."""
    if command["do"] == METADATA_VERSION:
        return max(recorded, command["version"]), command["version"] > LATEST_VERSION
    return recorded, COMMAND_VERSIONS[command["do"]] > max(recorded, UNREPORTED_VERSION)
