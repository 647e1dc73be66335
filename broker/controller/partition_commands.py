"""The controller's commands to log groups: open partitions, close them, forget offsets of a topic.

The leader of the group executes a command, on whatever node; a repeated command does what is missing. The
controller decides; this module sends its commands to the leaders and executes them there. Invariants: one
command at a time changes a group's partitions, so that a partition is not opened twice; a command is rejected
once this node knows of a newer controller, which may have finished the work and shown it to clients. Does
not: record anything in group 0 (`broker/controller/topics.py` does).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache
from lockstep.broker.metadata.metadata_image import MetadataImage
from lockstep.broker.peers.peer_rpc import NotLeaderHere, PeerRpc, RequestKind
from lockstep.broker.requests.errors import RequestError
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import CONTROL_PARTITION, NotLeader, StorageError

COMMAND_TIMEOUT_SECONDS: Final = 10.0
"""The timeout of a command, and of the search for a leader: without one for so long the command fails."""

TOPIC_ID_BYTES: Final = 16
LAST_INDEX: Final = (1 << 31) - 1
MAX_PENDING_COMMANDS: Final = 16
"""LIMIT. Commands in flight to one group: its leader executes one after the other, and serves only so many
requests of a peer. Further commands wait here."""
QUEUE_TIMEOUT_SECONDS: Final = 30.0
"""The time that a command waits here, lest commands to a group without a leader pile up."""

MAX_ORPHANS: Final = 1000
"""LIMIT. Orphans in one response of a group's leader; it reports the rest once these are closed."""
DEPOSED: Final = "of a controller that was deposed"
"""The text on the wire by which a late command is rejected."""

SOME_STAY = b"some stay"
Forget = Callable[[int, str], Awaitable[bool]]
"""Group id, topic name; whether some offsets have to stay for now."""

_FIXED: Final = bytes(8)
"""The first bytes of an id that is not random."""


def is_placed(image: MetadataImage, topic_id: bytes, index: int, group_id: int) -> bool:
    """Returns whether a topic has this partition, or is getting it, in this log group."""
    entry = image.topics.get(topic_id)
    groups = [] if entry is None else entry.groups + entry.growing
    return topic_id.startswith(_FIXED) or (index < len(groups) and groups[index] == group_id)


class PartitionCommands:
    """See the module.

    Args:
        peer_rpc: None for a node alone.
        forget_offsets_here: deletes a topic's committed offsets in a group led here; RequestError: retry.
    """

    def __init__(self, cluster: MetadataCache, peer_rpc: PeerRpc | None, forget_offsets_here: Forget) -> None:
        self._cluster = cluster
        self._peer_rpc = peer_rpc
        self.forget_offsets_here = forget_offsets_here
        self._locks: dict[int, asyncio.Lock] = {}
        self._semaphores: dict[int, asyncio.Semaphore] = {}
        self._terms: dict[int, int] = {}
        """The highest term of group 0 in a command to each group."""
        self.term = 0
        """The term of group 0 in which this node led it last; its commands have it."""
        if peer_rpc is not None:
            peer_rpc.handlers[RequestKind.GROUP] = self._handle_request

    async def open(self, group_id: int, topic_id: bytes, indexes: Sequence[int]) -> None:
        """Opens these partitions of a topic. Raises StorageError; NotLeader where the group had no leader in
        time."""
        if self._is_led_here(group_id):
            self._check_term(group_id, self.term)
            await self._open(group_id, topic_id, indexes)
        else:
            await self._at_leader(group_id, {"do": "open", "topic": topic_id.hex(), "indexes": list(indexes)})

    async def close(self, group_id: int, topic_id: bytes, first_index: int = 0) -> None:
        """Close a topic's partitions from `first_index` on. Raises StorageError."""
        if self._is_led_here(group_id):
            self._check_term(group_id, self.term)
            await self._close(group_id, topic_id, first_index)
        else:
            await self._at_leader(group_id, {"do": "close", "topic": topic_id.hex(), "first": first_index})

    async def end(self, group_id: int, topic_id: bytes, indexes: Sequence[int]) -> None:
        """Close these partitions of a topic. Raises StorageError."""
        if self._is_led_here(group_id):
            self._check_term(group_id, self.term)
            await self._end(group_id, topic_id, indexes)
        else:
            await self._at_leader(group_id, {"do": "end", "topic": topic_id.hex(), "indexes": list(indexes)})

    async def find_orphans(self, group_id: int) -> dict[bytes, list[int]]:
        """Returns the partitions, by topic id, that are open in a group although no topic has them. Raises
        StorageError."""
        if self._is_led_here(group_id):
            return self._local_orphans(group_id)
        response = json.loads(await self._at_leader(group_id, {"do": "tell"}))
        return {bytes.fromhex(topic_id): indexes for topic_id, indexes in response.items()}

    async def forget(self, group_id: int, name: str) -> bool:
        """Deletes the offsets that consumer groups committed for a topic; returns whether some have to stay
        for now, as on a full disk. Raises StorageError."""
        if self._is_led_here(group_id):
            self._check_term(group_id, self.term)
            return bool(await self._forget(group_id, name))
        return bool(await self._at_leader(group_id, {"do": "forget", "name": name}))

    # --- here -----------------------------------------------------------------------------------------------

    def _is_led_here(self, group_id: int) -> bool:
        group = self._cluster.groups.get(group_id)
        return group is not None and (group.is_leader or self._peer_rpc is None)

    async def _open(self, group_id: int, topic_id: bytes, indexes: Sequence[int]) -> None:
        async with self._locks.setdefault(group_id, asyncio.Lock()):
            there = self._cluster.open_partitions(topic_id, group_id)
            missing = [(topic_id, index) for index in indexes if index not in there]
            if missing:
                await self._cluster.groups[group_id].open_partitions(missing)

    async def _close(self, group_id: int, topic_id: bytes, first_index: int) -> None:
        async with self._locks.setdefault(group_id, asyncio.Lock()):
            there = self._cluster.open_partitions(topic_id, group_id)
            numbers = [log.local_id for index, log in there.items() if index >= first_index]
            if numbers:
                group = self._cluster.groups[group_id]
                await group.close_partitions(numbers)
                group.free_deleted_segments()

    async def _end(self, group_id: int, topic_id: bytes, indexes: Sequence[int]) -> None:
        async with self._locks.setdefault(group_id, asyncio.Lock()):
            # not `open_partitions`, which has one log for each index: the other log may be the right one
            group = self._cluster.groups[group_id]
            ended = [each for each in group.partitions.values() if each.topic_id == topic_id]
            numbers = [each.local_id for each in ended if each.index in indexes]
            if numbers:
                await group.close_partitions(numbers)

    def _local_orphans(self, group_id: int) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        count = 0
        for each in self._cluster.groups[group_id].partitions.values():
            placed = is_placed(self._cluster.image, each.topic_id, each.index, group_id)
            if each.local_id != CONTROL_PARTITION and not placed and count < MAX_ORPHANS:
                found.setdefault(each.topic_id, []).append(each.index)
                count += 1
        return found

    async def _encode_orphans(self, group_id: int) -> bytes:
        found = self._local_orphans(group_id)
        return json.dumps({topic_id.hex(): indexes for topic_id, indexes in found.items()}).encode()

    def _check_term(self, group_id: int, term: int) -> None:
        """Raises NotLeader if there is a newer controller."""
        metadata = self._cluster.groups.get(METADATA_GROUP)
        known = max(self._terms.get(group_id, 0), 0 if metadata is None else metadata.term)
        if self._peer_rpc is not None and term < known:
            raise NotLeader(f"a command {DEPOSED} in term {known}: it bears term {term}")
        self._terms[group_id] = term

    async def _forget(self, group_id: int, name: str) -> bytes:
        """Returns `SOME_STAY` or nothing. Earlier versions return nothing, and raise where some stay."""
        try:
            return SOME_STAY if await self.forget_offsets_here(group_id, name) else b""
        except RequestError as rejection:
            raise NotLeader(rejection.message) from None

    # --- elsewhere ------------------------------------------------------------------------------------------

    async def _at_leader(self, group_id: int, command: dict[str, object]) -> bytes:
        if self._peer_rpc is None:
            raise StorageError(f"there is no log group {group_id}")
        body = json.dumps({"group": group_id, "term": self.term, **command}).encode()
        semaphore = self._semaphores.setdefault(group_id, asyncio.Semaphore(MAX_PENDING_COMMANDS))
        try:
            async with asyncio.timeout(QUEUE_TIMEOUT_SECONDS):
                await semaphore.acquire()
        except TimeoutError:
            raise NotLeader(f"too many commands wait for group {group_id}") from None
        try:
            return await self._peer_rpc.request_from_leader(
                group_id, RequestKind.GROUP, body, COMMAND_TIMEOUT_SECONDS, COMMAND_TIMEOUT_SECONDS
            )
        except PeerError as error:
            if DEPOSED in str(error):
                raise NotLeader(str(error)) from None
            raise StorageError(str(error)) from None
        finally:
            semaphore.release()

    async def _handle_request(self, node_id: int, body: bytes) -> bytes:
        try:
            command = json.loads(body)
            group_id, work = self._parse_command(command)
            term = int(command.get("term", 0))  # earlier versions send none
        except (ValueError, LookupError, TypeError, RecursionError):
            raise PeerError(f"a malformed command: {body[:200]!r}") from None
        if not self._is_led_here(group_id):
            raise NotLeaderHere(f"group {group_id} is not led here")
        if "term" in command:
            try:
                self._check_term(group_id, term)
            except NotLeader as late:
                raise PeerError(str(late)) from None
        return await work() or b""

    def _parse_command(self, command: dict[str, object]) -> tuple[int, Callable[[], Awaitable[bytes | None]]]:
        """Returns the group and the work to do there; a malformed command may not reach its log.

        Raises ValueError, LookupError, TypeError.
        """
        match command:
            case {"group": int(group_id), "do": "open", "topic": str(topic_id), "indexes": list(indexes)}:
                return group_id, partial(self._open, group_id, _topic_id(topic_id), _indexes(indexes))
            case {"group": int(group_id), "do": "end", "topic": str(topic_id), "indexes": list(indexes)}:
                return group_id, partial(self._end, group_id, _topic_id(topic_id), _indexes(indexes))
            case {"group": int(group_id), "do": "tell"}:
                return group_id, partial(self._encode_orphans, group_id)
            case {"group": int(group_id), "do": "close", "topic": str(topic_id), "first": int(first_index)}:
                return group_id, partial(self._close, group_id, _topic_id(topic_id), first_index)
            case {"group": int(group_id), "do": "forget", "name": str(name)}:
                return group_id, partial(self._forget, group_id, name)
        raise ValueError("no command")


def _indexes(indexes: list[Any]) -> list[int]:
    if not all(type(each) is int and 0 <= each <= LAST_INDEX for each in indexes):
        raise ValueError("invalid partition indexes")
    return indexes


def _topic_id(text: str) -> bytes:
    topic_id = bytes.fromhex(text)
    if len(topic_id) != TOPIC_ID_BYTES:
        raise ValueError("a topic id of another size")
    return topic_id
