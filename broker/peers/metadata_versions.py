"""The metadata versions that the nodes support, as this one knows them by their handshakes.

Pure. Owns: which nodes a version has to wait for, and which nodes are too old for the recorded one: these are
rejected, and get no entry of group 0. Invariant: a node supports what the process reported that is connected
now; one that is not connected supports nothing. So a version that all support is known to every process that
may get it, and a node that returns with an older Lockstep is rejected before it gets anything.
Does not: record a version (`broker/controller/metadata_version_control.py` does).
Source: Kafka's BrokerRegistration (KIP-584); etcd's cluster version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from lockstep.broker.metadata.metadata_image import MetadataImage
from lockstep.broker.metadata.metadata_version import (
    FIRST_RECORDED_VERSION,
    UNREPORTED_VERSION,
    features_between,
)

MAX_REJECTED: Final = 16
"""LIMIT. Rejected nodes that are remembered, for the errors of operators' requests."""
TOO_OLD: Final = "does not support the cluster's metadata version"
"""A part of the error that rejects a node; a node that receives such an error stops."""


class MetadataVersions:
    """See the module. Args: node_id: this node."""

    def __init__(self, node_id: int, image: MetadataImage) -> None:
        self._node_id = node_id
        self._image = image
        self.is_connected: Callable[[int], bool] = _never_connected
        """Whether a connection from a node is open, whose handshake `report` has seen."""
        self.version_at_last_stop = 0
        """The recorded version at this node's last stop: until its image has it, too."""
        self.version_being_appended = 0
        """A version that is being appended, or was by a controller that lost its leadership over it; 0 for
        none."""
        self._reported: dict[int, int] = {}
        self._rejected: dict[int, int] = {}

    # --- what nodes support ---------------------------------------------------------------------------------

    def report(self, node_id: int, supported: int) -> str | None:
        """A node's handshake reports the highest version that it supports; a text rejects the node."""
        self._rejected.pop(node_id, None)
        if supported < self._needed_version:
            if len(self._rejected) < MAX_REJECTED:
                self._rejected[node_id] = supported
            return _too_old(node_id, supported, self._needed_version)
        self._reported[node_id] = supported
        return None

    def supported_by(self, node_id: int) -> int | None:
        """The highest version that a node supports; None where it is not connected."""
        if node_id == self._node_id:
            return self._image.supported_version
        return self._reported.get(node_id) if self.is_connected(node_id) else None

    def may_get_entries(self, node_id: int) -> bool:
        """Returns whether a node may get entries and checkpoints of group 0."""
        return (self.supported_by(node_id) or 0) >= self._needed_version

    def registration_error(self, node_id: int) -> str | None:
        """Why a node that has sent a request cannot be a part of the cluster; None where it can. One that is
        recorded keeps its place while no version is recorded, whatever the log has."""
        needed = (
            self._needed_version if node_id in self._image.nodes else max(self._needed_version, self.in_force)
        )
        supported = self.supported_by(node_id) or self._reported.get(node_id, UNREPORTED_VERSION)
        return _too_old(node_id, supported, needed) if supported < needed else None

    @property
    def _needed_version(self) -> int:
        return max(self._image.recorded_version, self.version_at_last_stop, self.version_being_appended)

    # --- what the cluster has -------------------------------------------------------------------------------

    @property
    def in_force(self) -> int:
        """The metadata version of the cluster: its commands may be recorded."""
        return max(self._image.metadata_version, self.version_at_last_stop)

    def nodes(self) -> list[int]:
        """Every node that gets group 0's log, now or once it is there."""
        placed = (each for nodes in self._image.placement.values() for each in nodes)
        return sorted({self._node_id, *self._image.nodes, *placed})

    def find_unsupporting(self, version: int) -> dict[int, int | None]:
        """The nodes that do not support a version, and what each supports: None where it is not connected,
        nor was rejected."""
        supported = {each: self.supported_by(each) or self._rejected.get(each) for each in self.nodes()}
        return {node: each for node, each in supported.items() if each is None or each < version}

    def version_to_record(self) -> int | None:
        """The version that every node supports, where it is higher than the recorded one; None for none."""
        return self._to_record(self.nodes())

    def version_to_found(self) -> int | None:
        """The version of a new cluster: nodes that have not joined yet have none of its log, and do not
        count. None for none."""
        return self._to_record(each for each in (self._node_id, *self._reported) if self.supported_by(each))

    def _to_record(self, nodes: Iterable[int]) -> int | None:
        highest = min(self.supported_by(each) or UNREPORTED_VERSION for each in nodes)
        recordable = highest >= FIRST_RECORDED_VERSION and highest > self._image.recorded_version
        return highest if recordable else None

    # --- for operators
    # -----------------------------------------------------------------------------------------

    def latest_supported(self) -> int:
        """The highest version that any node supports."""
        return max(self.in_force, *(self.supported_by(each) or 0 for each in self.nodes()))

    def unsupported_text(self, version: int) -> str:
        """The reason why a version is not in force, and the remedy."""
        problems = [
            f"node {node_id} {'is not connected' if supported is None else f'supports up to {supported}'}"
            for node_id, supported in self.find_unsupporting(version).items()
        ]
        text = f"metadata version {version} is needed, the cluster has {self.in_force}"
        if not problems:
            return f"{text}, which the controller is about to raise: try again"
        advice = "start each with the newest Lockstep; `lockstep cluster remove` removes one that is gone"
        return f"{text}, as {', '.join(problems)}: {advice}"

    def rejection_text(self, node_id: int) -> str | None:
        """Why a node was rejected; None where it was not."""
        supported = self._rejected.get(node_id)
        return None if supported is None else _too_old(node_id, supported, self.in_force)

    def document(self) -> dict[str, Any]:
        """For the cluster's status: the version in force, and what waits for which nodes."""
        latest = self.latest_supported()
        unsupporting = self.find_unsupporting(latest)
        if latest == self.in_force:  # a node that is merely down is not waited for
            unsupporting = {
                node_id: supported for node_id, supported in unsupporting.items() if supported is not None
            }
        return {
            "version": self.in_force,
            "latest": latest,
            "features_to_come": features_between(self.in_force, latest),
            "waits_for": [
                {"node": node_id, "supports": supported} for node_id, supported in unsupporting.items()
            ],
        }


def _too_old(node_id: int, supported: int, needed: int) -> str:
    text = f"node {node_id} {TOO_OLD} {needed}, only up to {supported}"
    return f"{text}: start it with the Lockstep of the other nodes"


def _never_connected(node_id: int) -> bool:
    return False
