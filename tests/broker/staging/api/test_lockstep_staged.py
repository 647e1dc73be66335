"""LockstepStaged without a broker: ids, and what waits for the commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.staging.api.lockstep_staged import LockstepStaged
from lockstep.broker.staging.stage_commit import StageCommit
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.staged_messages import (
    MAX_QUERY_CHARACTERS,
    LockstepStagedRequest,
    LockstepStagedResponse,
    Stage,
    StagedRecord,
    is_staged_by,
)
from lockstep.storage.types import NotLeader, StorageError
from tests.broker.fakes import FakeMetadata, client, header
from tests.support.cases import each_case

E = ErrorCode


class FakeGroup:
    """A log group that counts who waited for its commit. Args: error: nothing is committed."""

    def __init__(self, error: StorageError | None = None) -> None:
        self.waits = 0
        self.error = error

    async def committed(self) -> None:
        self.waits += 1
        if self.error is not None:
            raise self.error


class World:
    """The ends of stages as a test tells them."""

    def __init__(self) -> None:
        self.group = FakeGroup()
        self.calls: list[tuple[Any, ...]] = []
        self.error = E.NONE
        self.metadata = FakeMetadata()

    async def take(self) -> int:
        return 5

    def commit(self, query: str, stages: Any, record: Any) -> tuple[FakeGroup, Any]:
        self.calls.append(("commit", query, len(stages)))
        if self.error is not E.NONE:
            raise RequestError(self.error, "x" * 9_000)
        return self.group, SimpleNamespace(base_offset=12)

    def abort(self, query: str, stages: Any) -> list[FakeGroup]:
        self.calls.append(("abort", query, len(stages)))
        return [self.group]

    def abandon(self, query: str, topics: Any) -> list[FakeGroup]:
        self.calls.append(("abandon", query, list(topics)))
        return [self.group]

    async def ask(self, **fields: Any) -> LockstepStagedResponse:
        handler = LockstepStaged(cast(StageCommit, self), self.take, self.metadata.cluster)
        return await handler.handle(client(), header(0), LockstepStagedRequest(**fields))


def record() -> StagedRecord:
    return StagedRecord(topic="t", partition_index=0, records=b"")


async def test_an_id_of_the_query() -> None:
    world = World()
    world.metadata.add_topic("t", (1, 2, 1))
    response = await world.ask(query="q", topics=["t", "u"])
    assert response.error_code == E.NONE and is_staged_by(response.producer_id, "q")
    assert [(each.name, each.group_ids) for each in response.topics] == [("t", [1, 2]), ("u", [])]
    assert world.calls == []


@each_case(
    "fields",
    [
        {"query": ""},
        {"query": "q" * (MAX_QUERY_CHARACTERS + 1)},
        {"query": "q", "is_commit": True},
        {"query": "q", "record": [record()]},
    ],
)
async def test_invalid_requests(fields: dict[str, Any]) -> None:
    world = World()
    assert (await world.ask(**fields)).error_code == E.INVALID_REQUEST
    assert world.calls == []


async def test_a_commit_waits_for_its_log_group() -> None:
    world = World()
    response = await world.ask(query="q", is_commit=True, record=[record()], stages=[Stage(producer_id=1)])
    assert (response.error_code, response.base_offset, world.group.waits) == (E.NONE, 12, 1)
    assert world.calls == [("commit", "q", 1)]


async def test_a_rejected_commit() -> None:
    world = World()
    world.error = E.POLICY_VIOLATION
    response = await world.ask(query="q", is_commit=True, record=[record()])
    assert (response.error_code, len(response.error_message or "")) == (E.POLICY_VIOLATION, 5_000)


async def test_stages_are_aborted_and_abandoned() -> None:
    world = World()
    response = await world.ask(query="q", stages=[Stage(producer_id=1)], abandoned=["t"])
    assert (response.error_code, world.group.waits) == (E.NONE, 2)
    assert world.calls == [("abort", "q", 1), ("abandon", "q", ["t"])]


@each_case(
    ("error", "code"),
    [(NotLeader("lost"), E.NOT_LEADER_OR_FOLLOWER), (StorageError("full"), E.KAFKA_STORAGE_ERROR)],
)
async def test_what_is_not_committed(error: StorageError, code: ErrorCode) -> None:
    world = World()
    world.group.error = error
    response = await world.ask(query="q", stages=[Stage(producer_id=1)])
    assert (response.error_code, response.error_message) == (code, str(error))
