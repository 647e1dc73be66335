"""Asking the coordinator of a transactional id, on whatever node, whether partitions are in its transaction.

Owns: the question between nodes (`RequestKind.VERIFY`), and what its errors are for a producer. Invariants:
every partition gets a response within seconds; an id's coordinator answers for itself, wherever it is asked
from. Does not: know batches (`verification_queue.py`) or transactions (the coordinator does). Source:
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

ATTEMPT_SECONDS: Final = 2.0
"""A coordinator is looked for so long; a producer sends its batch again."""
ANSWER_SECONDS: Final = 10.0
"""It serves the requests of one id one after the other."""

ABORTABLE_MIN_PRODUCE_VERSION: Final = 11
"""Older versions of Produce do not know TRANSACTION_ABORTABLE (KIP-890 part 1)."""
ADDS_MIN_PRODUCE_VERSION: Final = 12
"""Since then a batch adds its partition to the transaction (KIP-890 part 2)."""

Place = tuple[str, int]
"""A topic's name and Kafka's number of the partition."""
Codes = Mapping[Place, ErrorCode]

LOOK_ON: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Whoever says this is to be asked again, or another node is."""
NO_COORDINATOR: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What says nothing of the transaction."""


class Question(NamedTuple):
    """The request whether partitions are in the transaction of this producer. The partitions are apart, so
    that requests that differ only in them are merged: it is a key, too."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    add: bool
    """Add to the transaction those that are not part of it yet."""


class Coordinators(Protocol):
    """The front door to transactions, as far as it is needed here."""

    def log_group_of(self, transactional_id: str) -> int | None:
        """The log group whose leader coordinates this id; None where nobody does yet."""

    async def verify(self, question: Question, partitions: Sequence[Place]) -> Codes:
        """Returns the local coordinator's result for each. Raises RequestError for all of them."""

    def verify_now(self, question: Question, partitions: Sequence[Place]) -> Codes | None:
        """The same at once, or None where it takes longer, or not here. Raises RequestError."""


class Verification:
    """See the module. Args: peering: None for a node alone."""

    def __init__(self, coordinators: Coordinators, peering: PeerRpc | None) -> None:
        self._coordinators = coordinators
        self._peering = peering
        if peering is not None:
            peering.handlers[RequestKind.VERIFY] = self._handle_request

    def now(self, question: Question, partitions: Sequence[Place]) -> Codes | None:
        """The answer where it is to be had without waiting; None where `ask` is to be asked."""
        try:
            return self._coordinators.verify_now(question, partitions)
        except RequestError as refused:
            if refused.error in LOOK_ON:
                return None
            return dict.fromkeys(partitions, refused.error)

    async def ask(self, question: Question, partitions: Sequence[Place]) -> Codes:
        """Returns the coordinator's result for each partition; NETWORK_EXCEPTION where none responds."""
        group_id = self._coordinators.log_group_of(question.transactional_id)
        if group_id is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        said = {
            "id": question.transactional_id,
            "producer": question.producer_id,
            "epoch": question.producer_epoch,
            "add": question.add,
            "partitions": partitions,
        }
        body = json.dumps(said).encode()
        try:
            if self._peering is None:
                answer = await self._handle_request(0, body)
            else:
                answer = await self._peering.request_from_leader(
                    group_id, RequestKind.VERIFY, body, ATTEMPT_SECONDS, ANSWER_SECONDS
                )
            return _understood(answer, partitions)
        except (NotLeaderHere, NotLeader):
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except (PeerError, StorageError, TimeoutError) as error:
            log.debug("the coordinator of %r: %s", question.transactional_id, error)
        except Exception:  # a batch that waits for this would wait for ever
            log.exception("the coordinator of %r", question.transactional_id)
        return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)

    async def _handle_request(self, node_id: int, body: bytes) -> bytes:
        """A node asks that has a batch of this id, or offsets."""
        try:
            match json.loads(body):
                case {
                    "id": str(transactional_id),
                    "producer": int(producer_id),
                    "epoch": int(producer_epoch),
                    "add": bool(add),
                    "partitions": list(said),
                }:
                    question = Question(transactional_id, producer_id, producer_epoch, add)
                    partitions = [_place(each) for each in said]
                case _:
                    raise ValueError("no question")
        except (ValueError, TypeError, RecursionError):
            raise PeerError(f"a question that is not understood: {body[:200]!r}") from None
        try:
            codes = await self._coordinators.verify(question, partitions)
        except RequestError as refused:
            if refused.error in LOOK_ON:
                raise NotLeaderHere(refused.message) from None
            codes = dict.fromkeys(partitions, refused.error)
        return json.dumps([codes[each] for each in partitions]).encode()


def _place(said: object) -> Place:
    match said:
        case [str(name), int(index)]:
            return name, index
    raise ValueError("no partition")


def _understood(answer: bytes, partitions: Sequence[Place]) -> Codes:
    codes = [ErrorCode(each) for each in json.loads(answer)]
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
    if busy or code in NO_COORDINATOR:
        # Kafka's choice: every client tries again, and none asks for metadata first.
        text = f"Unable to verify the partition has been added to the transaction: {code.message}"
        return RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, text)
    return RequestError(code, code.message)
