"""Requests to the coordinator of a transactional id, on whatever node: are partitions in its transaction?

Owns: the request between nodes (`RequestKind.VERIFY`), and what its errors are for a producer. Invariants:
every partition gets a response within seconds; only the id's coordinator decides, whichever node sends the
request. Does not: know batches (`verification_queue.py`) or transactions (the coordinator does). Source:
KIP-890; Kafka's AddPartitionsToTxnManager and ReplicaManager.handleProduceAppend for the errors.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from lockstep.broker.peers.peer_rpc import NotLeaderHere, PeerRpc, RequestKind
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import NotLeader, StorageError

log = logging.getLogger("lockstep.transactions")

LEADER_TIMEOUT_SECONDS: Final = 2.0
"""The time to find the coordinator; after it a producer sends its batch again."""
RESPONSE_TIMEOUT_SECONDS: Final = 10.0
"""The timeout of a response: a coordinator serves the requests of one id one after the other."""

ABORTABLE_MIN_PRODUCE_VERSION: Final = 11
"""Older versions of Produce do not know TRANSACTION_ABORTABLE (KIP-890 part 1)."""
ADDS_MIN_PRODUCE_VERSION: Final = 12
"""Since then a batch adds its partition to the transaction (KIP-890 part 2)."""

TopicPartition = tuple[str, int]
"""A topic's name and Kafka's number of the partition."""
Codes = Mapping[TopicPartition, ErrorCode]

RETRIABLE_ERRORS: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""The errors of a node that is not, or not yet, the coordinator: the request is sent again, or elsewhere."""
COORDINATOR_ERRORS: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""The errors of a coordinator that is unavailable; they state nothing of the transaction."""


class VerificationRequest(NamedTuple):
    """A request whether partitions are in the transaction of this producer, and the key by which requests are
    merged: those of one key differ only in their partitions, which are therefore not in it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    add: bool
    """Add to the transaction those that are not part of it yet."""


class Coordinators(Protocol):
    """The coordinators of transactions, as far as they are needed here."""

    def log_group_of(self, transactional_id: str) -> int | None:
        """The log group whose leader coordinates this id; None where it has none yet."""

    async def verify(self, request: VerificationRequest, partitions: Sequence[TopicPartition]) -> Codes:
        """Returns the local coordinator's result for each. Raises RequestError for all of them."""

    def verify_now(self, request: VerificationRequest, partitions: Sequence[TopicPartition]) -> Codes | None:
        """The same at once, or None where it takes longer, or not here. Raises RequestError."""


class Verification:
    """See the module. Args: peer_rpc: None for a node alone."""

    def __init__(self, coordinators: Coordinators, peer_rpc: PeerRpc | None) -> None:
        self._coordinators = coordinators
        self._peer_rpc = peer_rpc
        if peer_rpc is not None:
            peer_rpc.handlers[RequestKind.VERIFY] = self._handle_request

    def verify_now(self, request: VerificationRequest, partitions: Sequence[TopicPartition]) -> Codes | None:
        """Returns the result if it is here without waiting; None: call `verify`."""
        try:
            return self._coordinators.verify_now(request, partitions)
        except RequestError as rejection:
            if rejection.error in RETRIABLE_ERRORS:
                return None
            return dict.fromkeys(partitions, rejection.error)

    async def verify(self, request: VerificationRequest, partitions: Sequence[TopicPartition]) -> Codes:
        """Returns the coordinator's result for each partition; NETWORK_EXCEPTION where none responds."""
        group_id = self._coordinators.log_group_of(request.transactional_id)
        if group_id is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        fields = {
            "id": request.transactional_id,
            "producer": request.producer_id,
            "epoch": request.producer_epoch,
            "add": request.add,
            "partitions": partitions,
        }
        body = json.dumps(fields).encode()
        try:
            if self._peer_rpc is None:
                response = await self._handle_request(0, body)
            else:
                response = await self._peer_rpc.request_from_leader(
                    group_id, RequestKind.VERIFY, body, LEADER_TIMEOUT_SECONDS, RESPONSE_TIMEOUT_SECONDS
                )
            return _parse_codes(response, partitions)
        except (NotLeaderHere, NotLeader):
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except (PeerError, StorageError, TimeoutError) as error:
            log.debug("the coordinator of %r: %s", request.transactional_id, error)
        except Exception:  # a batch that waits for this would wait for ever
            log.exception("the coordinator of %r", request.transactional_id)
        return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)

    async def _handle_request(self, node_id: int, body: bytes) -> bytes:
        """Handles the request of a node that has a batch of this id, or offsets."""
        try:
            match json.loads(body):
                case {
                    "id": str(transactional_id),
                    "producer": int(producer_id),
                    "epoch": int(producer_epoch),
                    "add": bool(add),
                    "partitions": list(pairs),
                }:
                    request = VerificationRequest(transactional_id, producer_id, producer_epoch, add)
                    partitions = [_topic_partition(each) for each in pairs]
                case _:
                    raise ValueError("no request")
        except (ValueError, TypeError, RecursionError):
            raise PeerError(f"a malformed verification request: {body[:200]!r}") from None
        try:
            codes = await self._coordinators.verify(request, partitions)
        except RequestError as rejection:
            if rejection.error in RETRIABLE_ERRORS:
                raise NotLeaderHere(rejection.message) from None
            codes = dict.fromkeys(partitions, rejection.error)
        return json.dumps([codes[each] for each in partitions]).encode()


def _topic_partition(pairs: object) -> TopicPartition:
    match pairs:
        case [str(name), int(index)]:
            return name, index
    raise ValueError("no partition")


def _parse_codes(response: bytes, partitions: Sequence[TopicPartition]) -> Codes:
    codes = [ErrorCode(each) for each in json.loads(response)]
    return dict(zip(partitions, codes, strict=True))


def producer_error(code: ErrorCode, produce_version: int) -> RequestError:
    """Returns the error for a Produce of this version where the coordinator's is not NONE."""
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and produce_version < ABORTABLE_MIN_PRODUCE_VERSION:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return RequestError(code, "Partition was not added to the transaction")
    busy = code is ErrorCode.CONCURRENT_TRANSACTIONS and produce_version < ADDS_MIN_PRODUCE_VERSION
    if busy or code in COORDINATOR_ERRORS:
        # Kafka's choice: every client retries, and none requests metadata first.
        text = f"Unable to verify the partition has been added to the transaction: {code.message}"
        return RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, text)
    return RequestError(code, code.message)
