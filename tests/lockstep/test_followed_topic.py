"""What is asked again, and what is not; a topic that is another one, or none."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from lockstep.kafka_client import followed_topic as module
from lockstep.kafka_client.client import Client, TopicMetadata
from lockstep.kafka_client.connection import BrokerError, ClientError, ConnectionFailed, Unsupported
from lockstep.kafka_client.followed_topic import FollowedTopic, TopicDeleted
from lockstep.protocol.errors import ErrorCode
from tests.support.cases import each_case

OLD = TopicMetadata("t", bytes(15) + b"1", False, ())
MOVED = TopicMetadata("t", bytes(15) + b"1", False, ())
ANEW = TopicMetadata("t", bytes(15) + b"2", False, ())
UNKNOWN = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t")


class Metadata(Client):
    """Says of the topic what it is told to; the last of that again and again."""

    def __init__(self, *coming: TopicMetadata | ClientError) -> None:
        super().__init__("nobody:1")
        self.coming = deque(coming)

    async def topics(self, names: object = None) -> list[TopicMetadata]:
        found = self.coming.popleft() if len(self.coming) > 1 else self.coming[0]
        if isinstance(found, ClientError):
            raise found
        return [found]


def failing(*errors: ClientError) -> tuple[list[int], object]:
    left = deque(errors)
    asked: list[int] = []

    async def ask() -> str:
        asked.append(len(left))
        if left:
            raise left.popleft()
        return "answered"

    return asked, ask


async def test_retriable_errors_are_retried_until_success() -> None:
    followed = FollowedTopic(Metadata(UNKNOWN, ConnectionFailed("no broker"), MOVED), OLD)
    passing = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t")
    asked, ask = failing(passing, ConnectionFailed("broke"), passing)
    assert await followed.retry_while(ask) == "answered"  # type: ignore[arg-type]
    assert len(asked) == 4 and followed.topic is MOVED


async def test_silence_is_a_problem_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = FollowedTopic(Metadata(MOVED), OLD)
    answered = asyncio.Event()

    async def ask() -> str:
        if not answered.is_set():
            raise ConnectionFailed("cannot connect to b:1")
        return "answered"

    asking = asyncio.create_task(followed.retry_while(ask))
    await asyncio.sleep(0.03)
    assert followed.problem() == "", "a leader may be moving"
    monkeypatch.setattr(module, "SILENT_AFTER_S", 0.01)
    assert followed.problem() == "no success for 0 s: cannot connect to b:1"
    answered.set()
    assert await asking == "answered" and followed.problem() == ""
    answered.clear()
    asking = asyncio.create_task(followed.retry_while(ask))
    await asyncio.sleep(0.05)
    assert followed.problem() != ""
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert followed.problem() == "", "nobody waits"


async def test_a_broker_without_a_response_for_long_is_suspected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_AFTER_S", 0.1)
    client, suspected = Metadata(MOVED), 0

    def suspect(for_s: float) -> None:
        nonlocal suspected
        suspected += 1

    monkeypatch.setattr(client, "suspect", suspect)
    no_leader = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "t")
    _, ask = failing(*[no_leader] * 4)
    assert await FollowedTopic(client, OLD).retry_while(ask) == "answered"  # type: ignore[arg-type]
    assert suspected >= 1, "a leader had a tenth of a second to be elected"
    before = suspected
    _, ask = failing(no_leader)
    assert await FollowedTopic(client, OLD).retry_while(ask) == "answered"  # type: ignore[arg-type]
    assert suspected == before, "and so has one at the next question"


async def test_the_timeout_raises_the_last_error() -> None:
    asked, ask = failing(*[ConnectionFailed(f"broke {number}") for number in range(100)])
    with pytest.raises(ConnectionFailed, match=r"broke [1-9]"):
        await FollowedTopic(Metadata(MOVED), OLD).retry_while(ask, 0.1)  # type: ignore[arg-type]
    assert 1 < len(asked) < 5


@each_case(
    "error",
    [BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, "t"), Unsupported("too old"), ClientError("nonsense")],
)
async def test_other_errors_are_raised(error: ClientError) -> None:
    asked, ask = failing(error)
    with pytest.raises(type(error)):
        await FollowedTopic(Metadata(MOVED), OLD).retry_while(ask)  # type: ignore[arg-type]
    assert len(asked) == 1


async def test_a_topic_that_was_made_again_is_another_one() -> None:
    followed = FollowedTopic(Metadata(ANEW), OLD)
    with pytest.raises(TopicDeleted, match="re-created meanwhile; start again"):
        await followed.refresh()
    assert followed.topic is OLD


async def test_that_it_is_deleted_is_believed_after_a_while() -> None:
    patient = FollowedTopic(Metadata(UNKNOWN), OLD)
    await patient.refresh()
    await patient.refresh()
    followed = FollowedTopic(Metadata(UNKNOWN, UNKNOWN, MOVED, UNKNOWN), OLD, deleted_after_s=0.05)
    await followed.refresh()
    await asyncio.sleep(0.01)
    await followed.refresh()
    await followed.refresh()  # it is there
    await followed.refresh()
    await asyncio.sleep(0.1)
    with pytest.raises(TopicDeleted, match="was deleted"):
        await followed.refresh()


async def test_a_closed_client_sends_no_request() -> None:
    followed = FollowedTopic(Metadata(MOVED), OLD)
    followed.client.close()
    with pytest.raises(ClientError, match="closed"):
        await followed.refresh()
    _, ask = failing(ConnectionFailed("broke"))
    with pytest.raises(ClientError, match="closed"):
        await followed.retry_while(ask)  # type: ignore[arg-type]
