"""The controller's commands to log groups: open partitions, close them, forget offsets of a topic.

Each is done by the group's leader, on whatever node, and may be asked again: it does what is missing. The
controller decides; here it is carried there. Invariants: one command at a time changes a group's partitions,
so that a partition is not opened twice; what a controller wanted is not done once it is known here that there
has been another, who may have finished it and given it to clients. Does not: record anything in group 0
(`broker/controller/topics.py` does).
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

COMMAND_SECONDS: Final = 10.0
"""A group without a leader for so long fails what needs it."""

TOPIC_ID_BYTES: Final = 16
LAST_INDEX: Final = (1 << 31) - 1
MAX_PENDING_COMMANDS: Final = 16
"""LIMIT. Commands on their way to one group: its leader does one after the other, and answers a peer only so
many questions. The rest waits here."""
QUEUE_TIMEOUT_SECONDS: Final = 30.0
"""So long, lest commands to a group without a leader pile up."""

MAX_UNEXPLAINED: Final = 1000
"""LIMIT. Partitions that a group's leader tells at once; the rest is told when these are closed."""
DEPOSED: Final = "of a controller that was deposed"
"""What the rejection of a late command says on the wire, where a rejection is a text."""

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
        peering: None for a node alone.
        forget_here: ends a topic's committed offsets in a group led here; raises RequestError: ask again.
    """

    def __init__(self, cluster: MetadataCache, peering: PeerRpc | None, forget_here: Forget) -> None:
        self._cluster = cluster
        self._peering = peering
        self.forget_here = forget_here
        self._locks: dict[int, asyncio.Lock] = {}
        self._turns: dict[int, asyncio.Semaphore] = {}
        self._terms: dict[int, int] = {}
        """Of group 0: the highest that a command to each group bore."""
        self.term = 0
        """Of group 0 when this node began to lead it, as it did last: commands bear it."""
        if peering is not None:
            peering.handlers[RequestKind.GROUP] = self._handle_request

    async def open(self, group_id: int, topic_id: bytes, indexes: Sequence[int]) -> None:
        """Open these partitions of a topic. StorageError; NotLeader where nobody led it in time."""
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

    async def find_unexplained(self, group_id: int) -> dict[bytes, list[int]]:
        """Partitions, by topic id, that a group has open and its leader knows no topic of. StorageError."""
        if self._is_led_here(group_id):
            return self._find_unexplained(group_id)
        told = json.loads(await self._at_leader(group_id, {"do": "tell"}))
        return {bytes.fromhex(topic_id): indexes for topic_id, indexes in told.items()}

    async def forget(self, group_id: int, name: str) -> bool:
        """End the offsets that consumer groups committed for a topic; whether some have to stay for now, as
        on a full disk. Raises StorageError."""
        if self._is_led_here(group_id):
            self._check_term(group_id, self.term)
            return bool(await self._forget(group_id, name))
        return bool(await self._at_leader(group_id, {"do": "forget", "name": name}))

    # --- here -----------------------------------------------------------------------------------------------

    def _is_led_here(self, group_id: int) -> bool:
        group = self._cluster.groups.get(group_id)
        return group is not None and (group.is_leader or self._peering is None)

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
                group.free_dead_segments()

    async def _end(self, group_id: int, topic_id: bytes, indexes: Sequence[int]) -> None:
        async with self._locks.setdefault(group_id, asyncio.Lock()):
            # not `opened`, which knows one log for each index: the other may be the right one, elsewhere
            group = self._cluster.groups[group_id]
            ended = [each for each in group.partitions.values() if each.topic_id == topic_id]
            numbers = [each.local_id for each in ended if each.index in indexes]
            if numbers:
                await group.close_partitions(numbers)

    def _find_unexplained(self, group_id: int) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        count = 0
        for each in self._cluster.groups[group_id].partitions.values():
            placed = is_placed(self._cluster.image, each.topic_id, each.index, group_id)
            if each.local_id != CONTROL_PARTITION and not placed and count < MAX_UNEXPLAINED:
                found.setdefault(each.topic_id, []).append(each.index)
                count += 1
        return found

    async def _tell(self, group_id: int) -> bytes:
        found = self._find_unexplained(group_id)
        return json.dumps({topic_id.hex(): indexes for topic_id, indexes in found.items()}).encode()

    def _check_term(self, group_id: int, term: int) -> None:
        """Raises NotLeader where another controller has come since."""
        metadata = self._cluster.groups.get(METADATA_GROUP)
        known = max(self._terms.get(group_id, 0), 0 if metadata is None else metadata.term)
        if self._peering is not None and term < known:
            raise NotLeader(f"a command {DEPOSED} in term {known}: it bears term {term}")
        self._terms[group_id] = term

    async def _forget(self, group_id: int, name: str) -> bytes:
        """`SOME_STAY` or nothing, which is all that versions say that raise where some stay."""
        try:
            return SOME_STAY if await self.forget_here(group_id, name) else b""
        except RequestError as refused:
            raise NotLeader(refused.message) from None

    # --- elsewhere ------------------------------------------------------------------------------------------

    async def _at_leader(self, group_id: int, command: dict[str, object]) -> bytes:
        if self._peering is None:
            raise StorageError(f"there is no log group {group_id}")
        body = json.dumps({"group": group_id, "term": self.term, **command}).encode()
        turn = self._turns.setdefault(group_id, asyncio.Semaphore(MAX_PENDING_COMMANDS))
        try:
            async with asyncio.timeout(QUEUE_TIMEOUT_SECONDS):
                await turn.acquire()
        except TimeoutError:
            raise NotLeader(f"too many commands wait for group {group_id}") from None
        try:
            return await self._peering.request_from_leader(
                group_id, RequestKind.GROUP, body, COMMAND_SECONDS, COMMAND_SECONDS
            )
        except PeerError as error:
            if DEPOSED in str(error):
                raise NotLeader(str(error)) from None
            raise StorageError(str(error)) from None
        finally:
            turn.release()

    async def _handle_request(self, node_id: int, body: bytes) -> bytes:
        try:
            command = json.loads(body)
            group_id, work = self._understood(command)
            term = int(command.get("term", 0))  # versions that knew none send none
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

    def _understood(self, command: dict[str, object]) -> tuple[int, Callable[[], Awaitable[bytes | None]]]:
        """The group and what is to be done there: what makes no sense may not come into its log.

        Raises ValueError, LookupError, TypeError.
        """
        match command:
            case {"group": int(group_id), "do": "open", "topic": str(topic_id), "indexes": list(indexes)}:
                return group_id, partial(self._open, group_id, _topic_id(topic_id), _indexes(indexes))
            case {"group": int(group_id), "do": "end", "topic": str(topic_id), "indexes": list(indexes)}:
                return group_id, partial(self._end, group_id, _topic_id(topic_id), _indexes(indexes))
            case {"group": int(group_id), "do": "tell"}:
                return group_id, partial(self._tell, group_id)
            case {"group": int(group_id), "do": "close", "topic": str(topic_id), "first": int(first_index)}:
                return group_id, partial(self._close, group_id, _topic_id(topic_id), first_index)
            case {"group": int(group_id), "do": "forget", "name": str(name)}:
                return group_id, partial(self._forget, group_id, name)
        raise ValueError("no command")


def _indexes(indexes: list[Any]) -> list[int]:
    if not all(type(each) is int and 0 <= each <= LAST_INDEX for each in indexes):
        raise ValueError("indexes that no partition has")
    return indexes


def _topic_id(text: str) -> bytes:
    topic_id = bytes.fromhex(text)
    if len(topic_id) != TOPIC_ID_BYTES:
        raise ValueError("a topic id of another size")
    return topic_id
