"""Sends transaction markers to the leaders of partitions in other log groups.

Owns: `MarkerSender`, through which a coordinator ends transactions in partitions outside its own log group,
and the leader's handling of these requests. Invariants: `write` returns when every partition has its marker
committed, or its topic is gone, which only the controller knows; a marker may be written again, which changes
nothing; requests go to a group's present leader until one succeeds; few requests to one group are in flight
at a time, each with all waiting markers. Does not: decide how a transaction ends, or keep anything: a
coordinator that loses its leadership cancels `write`, and the next one begins again. Source: Kafka's
TransactionMarkerChannelManager.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache
from lockstep.broker.peers.peer_rpc import NotLeaderHere, PeerRpc, RequestKind
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.partition import PartitionLog
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import NotLeader, StorageError

log = logging.getLogger("lockstep.transactions")

MIN_BACKOFF_SECONDS: Final = 0.02
MAX_BACKOFF_SECONDS: Final = 0.5
"""Between two attempts for a partition; doubled from the lowest to the highest."""
LEADER_TIMEOUT_SECONDS: Final = 0.2
"""The time to find a leader; after it the partitions are looked up again, for there is another term."""
RESPONSE_TIMEOUT_SECONDS: Final = 10.0
MAX_REQUESTS: Final = 4
"""LIMIT. Requests in flight to one group. Markers that arrive meanwhile go with the next one."""
MAX_PARTITIONS: Final = 5_000
"""LIMIT. Partitions in one request, but for a larger transaction, which goes alone: some 100 KB."""
MAX_IN_FRAME: Final = 500
"""LIMIT. Markers that share a frame: some 80 bytes each, which fits the smallest segments."""
WARNING_INTERVAL_SECONDS: Final = 10.0
"""A transaction whose markers are not written after this time is logged."""

TOPIC_ID_BYTES: Final = 16
LAST_INDEX: Final = (1 << 31) - 1

FENCED: Final = frozenset({ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Errors that no retry changes: there is a newer coordinator, or a newer epoch."""

TopicPartition = tuple[str, int]
"""A topic's name and the partition's index."""
PartitionKey = tuple[bytes, int]
"""The same by the topic's id: a leader may not know the name yet."""


class PendingMarkers(NamedTuple):
    """The markers of one transaction in one request."""

    marker: TxnMarkerEntry
    term: int
    """The group's term when the request was built: a late request may not end the next transaction of the
    same epoch. By then the group has had another term, or the same leader has handled the request before."""
    partitions: list[PartitionKey]


class _Waiting(NamedTuple):
    ending: PendingMarkers
    done: asyncio.Future[list[ErrorCode]]


class MarkerSender:
    """See the module. Args: appenders: by data group; peer_rpc: None for a node alone."""

    def __init__(
        self,
        cluster: MetadataCache,
        appenders: Mapping[int, Appender],
        peer_rpc: PeerRpc | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._cluster = cluster
        self._appenders = appenders
        self._peer_rpc = peer_rpc
        self._loop = loop
        self._queues: dict[int, _MarkerQueue] = {}
        if peer_rpc is not None:
            peer_rpc.handlers[RequestKind.MARKERS] = self._handle_request

    async def write(self, partitions: Sequence[TopicPartition], marker: TxnMarkerEntry) -> None:
        """Return when the transaction has ended in all these partitions.

        Raises RequestError(TRANSACTION_COORDINATOR_FENCED or INVALID_PRODUCER_EPOCH) where a partition has a
        marker of a newer coordinator or a newer epoch; the other partitions have their markers then.
        """
        left = list(dict.fromkeys(partitions))
        rejection: RequestError | None = None
        pause, began, has_warned = MIN_BACKOFF_SECONDS, self._loop.time(), False
        while True:
            codes = await self._send_once(left, marker)
            for (topic, index), code in codes.items():
                if code in FENCED:
                    text = f"producer {marker.producer_id} in {topic}-{index}: {code.message}"
                    rejection = rejection or RequestError(code, text)
            left = [each for each, code in codes.items() if code is not ErrorCode.NONE and code not in FENCED]
            if not left:
                break
            if not has_warned and self._loop.time() - began > WARNING_INTERVAL_SECONDS:
                has_warned = True
                (topic, index), code = left[0], codes[left[0]]
                text = "the end of a transaction of producer %d waits for %d partitions, %s-%d first: %s"
                log.warning(text, marker.producer_id, len(left), topic, index, code.message)
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)
        if rejection is not None:
            raise rejection

    async def write_here(
        self, topic_partitions: Sequence[TopicPartition], marker: TxnMarkerEntry
    ) -> dict[TopicPartition, ErrorCode]:
        """Ends a transaction in partitions that should be led here, by an admin tool's request."""
        if not is_valid(marker):
            return dict.fromkeys(topic_partitions, ErrorCode.UNKNOWN_SERVER_ERROR)  # as Kafka
        by_group, unknown = self._resolve(topic_partitions)
        codes = dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for group_id, targets in by_group.items():
            try:
                ending = PendingMarkers(marker, self._term(targets), list(targets.values()))
                (outcome,) = await self._end_here(group_id, [ending])
            except (NotLeaderHere, NotLeader):
                outcome = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * len(targets)
            except StorageError:
                outcome = [ErrorCode.KAFKA_STORAGE_ERROR] * len(targets)
            codes.update(zip(targets, outcome, strict=True))
        return codes

    # --- one attempt
    # -----------------------------------------------------------------------------------------

    async def _send_once(
        self, topic_partitions: Sequence[TopicPartition], marker: TxnMarkerEntry
    ) -> dict[TopicPartition, ErrorCode]:
        by_group, unknown = self._resolve(topic_partitions)
        codes: dict[TopicPartition, ErrorCode] = {}

        async def end(group_id: int, targets: dict[TopicPartition, PartitionKey]) -> None:
            outcome = await self._end(
                group_id, PendingMarkers(marker, self._term(targets), list(targets.values()))
            )
            codes.update(zip(targets, outcome, strict=True))

        async def find_absent() -> None:
            codes.update(await self._absent_topics(unknown))

        attempts = [end(group_id, targets) for group_id, targets in by_group.items()]
        if unknown:
            attempts.append(find_absent())
        await asyncio.gather(*attempts)
        return codes

    def _resolve(
        self, topic_partitions: Sequence[TopicPartition]
    ) -> tuple[dict[int, dict[TopicPartition, PartitionKey]], list[TopicPartition]]:
        """Returns the partitions by log group; and those that this node does not know."""
        by_group: dict[int, dict[TopicPartition, PartitionKey]] = {}
        unknown: list[TopicPartition] = []
        for topic_partition in topic_partitions:
            partition = self._cluster.partition(*topic_partition)
            if partition is None:
                unknown.append(topic_partition)
            else:
                found = by_group.setdefault(partition.group.group_id, {})
                found[topic_partition] = partition.topic.topic_id, partition.index
        return by_group, unknown

    def _term(self, topic_partitions: Iterable[TopicPartition]) -> int:
        """The term of the log group of these partitions; -1 where it is not known."""
        partition = self._cluster.partition(*next(iter(topic_partitions)))
        return -1 if partition is None else partition.group.term

    async def _end(self, group_id: int, ending: PendingMarkers) -> list[ErrorCode]:
        """Write the markers of one log group, on whichever node leads it."""
        group = self._cluster.groups.get(group_id)
        if self._peer_rpc is not None and (group is None or not group.is_leader):
            queue = self._queues.get(group_id)
            if queue is None:
                queue = self._queues[group_id] = _MarkerQueue(group_id, self._peer_rpc, self._loop)
            return await queue.put(ending)
        try:
            (codes,) = await self._end_here(group_id, [ending])
        except (NotLeaderHere, StorageError):
            return [ErrorCode.NOT_LEADER_OR_FOLLOWER] * len(ending.partitions)
        return codes

    async def _absent_topics(
        self, topic_partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns NONE for partitions that the controller does not know either: what does not exist needs no
        marker.

        This node's metadata may be behind: a marker left out would leave a transaction open for ever.
        """
        later = dict.fromkeys(topic_partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            if self._peer_rpc is None:
                absent = self._absent(topic_partitions)
            else:
                body = json.dumps({"do": "absent", "partitions": topic_partitions}).encode()
                response = await self._peer_rpc.request_from_leader(
                    METADATA_GROUP, RequestKind.MARKERS, body, LEADER_TIMEOUT_SECONDS
                )
                absent = json.loads(response)
            return later | {each: ErrorCode.NONE for at, each in enumerate(topic_partitions) if at in absent}
        except (StorageError, PeerError, ValueError, TypeError) as error:
            log.debug("whether a topic exists: %s", error)
            return later

    # --- as a leader ---------------------------------------------------------------------------------------

    async def _end_here(self, group_id: int, endings: Sequence[PendingMarkers]) -> list[list[ErrorCode]]:
        """Write markers into a group that is led here, wait for their commit. NotLeaderHere, StorageError."""
        group, appender = self._cluster.groups.get(group_id), self._appenders.get(group_id)
        if group is None or appender is None or not group.is_leader:
            raise NotLeaderHere(f"group {group_id} is not led here")
        term, moved = group.term, ErrorCode.NOT_LEADER_OR_FOLLOWER
        codes = [
            self._append(appender, group_id, each) if each.term == term else [moved] * len(each.partitions)
            for each in endings
        ]
        await group.committed()
        return codes

    def _append(self, appender: Appender, group_id: int, ending: PendingMarkers) -> list[ErrorCode]:
        found = [
            self._cluster.open_partition(topic_id, group_id, index) for topic_id, index in ending.partitions
        ]
        logs = list({each.local_id: each for each in found if each is not None}.values())
        outcome: dict[int, ErrorCode] = {}
        for first in range(0, len(logs), MAX_IN_FRAME):
            outcome |= _append_end(appender, logs[first : first + MAX_IN_FRAME], ending.marker)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return [unknown if each is None else outcome[each.local_id] for each in found]

    def _absent(self, topic_partitions: Sequence[TopicPartition]) -> list[int]:
        """Returns the partitions, by index in the list, that certainly do not exist. NotLeaderHere."""
        group = self._cluster.groups.get(METADATA_GROUP)
        if group is None or not group.has_lease or group.applied_index < group.commit_index:
            raise NotLeaderHere("not the controller")
        return [at for at, each in enumerate(topic_partitions) if self._cluster.partition(*each) is None]

    async def _handle_request(self, node_id: int, body: bytes) -> bytes:
        """Handles the request of another node's coordinator; a malformed one may not reach the log."""
        try:
            request = json.loads(body)
            match request:
                case {"do": "absent", "partitions": list(partitions)}:
                    topic_partitions = [_topic_partition(each) for each in partitions]
                    return json.dumps(self._absent(topic_partitions)).encode()
                case {"do": "end", "group": int(group_id), "endings": list(endings)}:
                    decoded = [_decode_ending(each) for each in endings]
                case _:
                    raise ValueError("no request")
        except (ValueError, TypeError, RecursionError):
            raise PeerError(f"a malformed marker request: {body[:200]!r}") from None
        return json.dumps(await self._end_here(group_id, decoded)).encode()


class _MarkerQueue:
    """The markers that wait for one group with a remote leader."""

    def __init__(self, group_id: int, peer_rpc: PeerRpc, loop: asyncio.AbstractEventLoop) -> None:
        self._group_id = group_id
        self._peer_rpc = peer_rpc
        self._loop = loop
        self._waiting: deque[_Waiting] = deque()
        self._senders: set[asyncio.Task[None]] = set()

    async def put(self, ending: PendingMarkers) -> list[ErrorCode]:
        """Sends markers; returns the outcome by partition, at the latest after a timeout."""
        waiting = _Waiting(ending, self._loop.create_future())
        self._waiting.append(waiting)
        if len(self._senders) < MAX_REQUESTS:
            self._senders.add(self._loop.create_task(self._send()))
        return await waiting.done

    async def _send(self) -> None:
        try:
            await asyncio.sleep(0)  # transactions that end in the same iteration share a request
            while batch := self._take():
                codes = await self._request_markers([each.ending for each in batch])
                for each, found in zip(batch, codes, strict=True):
                    if not each.done.done():
                        each.done.set_result(found)
        finally:  # at once: later markers would rely on a sender that has stopped
            sender = asyncio.current_task()
            assert sender is not None
            self._senders.discard(sender)

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        count = 0
        while self._waiting:
            first = self._waiting[0]
            if batch and count + len(first.ending.partitions) > MAX_PARTITIONS:
                break
            self._waiting.popleft()
            if not first.done.done():  # its coordinator does not wait any more
                batch.append(first)
                count += len(first.ending.partitions)
        return batch

    async def _request_markers(self, endings: Sequence[PendingMarkers]) -> list[list[ErrorCode]]:
        fields = [
            [*each.marker, each.term, [[topic_id.hex(), index] for topic_id, index in each.partitions]]
            for each in endings
        ]
        body = json.dumps({"do": "end", "group": self._group_id, "endings": fields}).encode()
        try:
            response = await self._peer_rpc.request_from_leader(
                self._group_id, RequestKind.MARKERS, body, LEADER_TIMEOUT_SECONDS, RESPONSE_TIMEOUT_SECONDS
            )
            codes = [[ErrorCode(code) for code in each] for each in json.loads(response)]
            if [len(each) for each in codes] == [len(each.partitions) for each in endings]:
                return codes
            log.warning("the response about markers in group %d is malformed", self._group_id)
        except (StorageError, PeerError) as error:
            log.debug("markers in group %d: %s", self._group_id, error)
        except Exception:  # the callers would wait for ever
            log.exception("markers in group %d", self._group_id)
        return [[ErrorCode.NOT_LEADER_OR_FOLLOWER] * len(each.partitions) for each in endings]


def _append_end(
    appender: Appender, logs: Sequence[PartitionLog], marker: TxnMarkerEntry
) -> dict[int, ErrorCode]:
    """Append one marker to each; where one of them rejects it, the others still get theirs."""
    try:
        appender.end_transactions(logs, marker)
        return dict.fromkeys((each.local_id for each in logs), ErrorCode.NONE)
    except RequestError as rejection:
        if len(logs) == 1:
            return {logs[0].local_id: rejection.error}
    except NotLeader as error:
        raise NotLeaderHere(str(error)) from None
    except StorageError:  # no room, or too much that is not committed
        return dict.fromkeys((each.local_id for each in logs), ErrorCode.KAFKA_STORAGE_ERROR)
    outcome: dict[int, ErrorCode] = {}
    for each in logs:
        outcome |= _append_end(appender, [each], marker)
    return outcome


def _topic_partition(fields: object) -> TopicPartition:
    match fields:
        case [str(name), int(index)]:
            return name, index
    raise ValueError("no partition")


def _decode_ending(fields: object) -> PendingMarkers:
    """Decodes a peer's request; ValueError for numbers that no log may hold."""
    match fields:
        case [int(id_), int(epoch), int(by), bool(commit), int(version), int(term), list(partitions)]:
            marker = TxnMarkerEntry(id_, epoch, by, commit, version)
        case _:
            raise ValueError("no marker")
    if not is_valid(marker):
        raise ValueError("a marker for no partition")
    return PendingMarkers(marker, term, [_decode_key(each) for each in partitions])


def is_valid(marker: TxnMarkerEntry) -> bool:
    """Returns whether a marker's numbers are valid for a coordinator's."""
    return (
        0 <= marker.producer_id < 1 << 63
        and 0 <= marker.producer_epoch < 1 << 15
        and -1 <= marker.coordinator_epoch < 1 << 31
        and 0 <= marker.version <= 2
    )


def _decode_key(fields: object) -> PartitionKey:
    match fields:
        case [str(topic_id), int(index)] if 0 <= index <= LAST_INDEX:
            found = bytes.fromhex(topic_id)
            if len(found) == TOPIC_ID_BYTES:
                return found, index
    raise ValueError("no partition")
