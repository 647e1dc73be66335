"""The metadata version on the controller: when a higher one is recorded, which requests have to wait for it.

Owns: the check of each command before it is recorded. Invariants: a command is appended only where the
cluster's metadata version has it; a version is appended only while every node of the cluster is connected and
supports it, and no node that does not is registered meanwhile. Does not: know what nodes support
(`broker/peers/metadata_versions.py`), or the version of each command (`broker/metadata/metadata_version.py`).
Source: Kafka's FeatureControlManager and ClusterControlManager; etcd's monitorVersions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from lockstep.broker.metadata.metadata_image import Command, NodeEntry, node_command
from lockstep.broker.metadata.metadata_version import metadata_version_command, required_version
from lockstep.broker.peers.metadata_versions import MetadataVersions
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.rate_limited_log import RateLimitedLog
from lockstep.storage.types import StorageError, StorageFull

log = logging.getLogger("lockstep.metadata")

Append = Callable[[Sequence[Command]], Awaitable[None]]


class MetadataVersionControl:
    """See the module. Args: append: commits commands, which are replayed when it returns; StorageError."""

    def __init__(self, versions: MetadataVersions, append: Append) -> None:
        self._versions = versions
        self._append = append
        self._changing = asyncio.Lock()
        self._rate_limited_log: Final = RateLimitedLog(lambda: asyncio.get_running_loop().time(), log)

    def founding_commands(self) -> list[Command]:
        """The version of a new cluster, which goes with its id."""
        version = self._versions.version_to_found()
        self._versions.version_being_appended = version or 0
        return [] if version is None else [metadata_version_command(version)]

    def check(self, commands: Sequence[Command]) -> None:
        """Raises RequestError where the cluster's version does not have one of the commands."""
        version = required_version(commands)
        if version > self._versions.in_force:
            text = self._versions.unsupported_text(version)
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, text[:1].upper() + text[1:])

    async def require(self, commands: Sequence[Command]) -> None:
        """Checks commands, after a check whether every node supports their version by now. Raises
        RequestError, StorageError."""
        if required_version(commands) > self._versions.in_force:
            await self.record_next()
        try:
            self.check(commands)
        except RequestError as error:  # of some APIs the response has no room for the text
            self._rate_limited_log.warning(f"a request is rejected: {error.message}", "rejected")
            raise

    async def record_next(self) -> None:
        """Records the version that every node supports, where that is a higher one. Raises StorageError."""
        async with self._changing:
            version, former = self._versions.version_to_record(), self._versions.in_force
            if version is None:
                return
            self._versions.version_being_appended = version
            try:
                await self._append([metadata_version_command(version)])
            except StorageFull:  # nothing was appended; after any other failure it may be committed yet
                self._versions.version_being_appended = 0
                raise
            self._versions.version_being_appended = 0
        log.info("metadata version %d, before %d: every node supports it", version, former)

    async def poll(self) -> None:
        """`record_next`, called periodically on the controller: a failure is logged, and retried at the next
        call."""
        try:
            await self.record_next()
        except StorageError as error:
            self._rate_limited_log.warning(f"a higher metadata version is delayed: {error}", "delayed")

    async def register(self, node: NodeEntry) -> None:
        """Records a node as a part of the cluster. Raises PeerError for one that does not support the
        cluster's metadata version, StorageError."""
        async with self._changing:
            if too_old := self._versions.registration_error(node.node_id):
                raise PeerError(too_old)
            await self._append([node_command(node)])
