"""The coordinator runtime: one write of a key at a time, in order, each operation with one outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lockstep.broker.coordination import coordinator_runtime
from lockstep.broker.coordination.coordinator_runtime import CoordinatorResult, CoordinatorRuntime
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from tests.broker.groups.fakes import FakeLoop


class Bench:
    """A runtime whose writes a test decides; `state` is what was committed."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.state: list[str] = []
        self.writes: list[tuple[str, list[str], Callable[[ErrorCode], None]]] = []
        self.outcomes: list[tuple[str, Any]] = []
        loop: Any = self.loop
        self.runtime: CoordinatorRuntime[str] = CoordinatorRuntime(loop, self._append)

    def _append(self, key: str, records: list[str], done: Callable[[ErrorCode], None]) -> None:
        self.writes.append((key, records, done))

    def write(self, key: str, *records: str) -> None:
        """Schedules an operation that writes these, and responds with the state that it saw."""
        name = "+".join(records) or "read"

        def operation() -> CoordinatorResult:
            return CoordinatorResult(records, list(self.state))

        self.runtime.schedule(key, operation, lambda response, error: self._note(name, response, error))

    def _note(self, name: str, response: Any, error: RequestError | None) -> None:
        self.outcomes.append((name, response if error is None else error.error.name))

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        _, records, done = self.writes.pop(0)
        if error is ErrorCode.NONE:
            self.state += records
        done(error)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_without_records_the_response_comes_at_once(bench: Bench) -> None:
    bench.write("k")
    assert (bench.outcomes, bench.writes) == ([("read", [])], [])
    assert not bench.runtime.is_busy("k")


def test_an_operation_sees_what_was_written_before_it(bench: Bench) -> None:
    for record in ("a", "b"):
        bench.write("k", record)
    bench.write("k")
    bench.write("other", "x")
    assert (len(bench.writes), bench.outcomes) == (2, [])
    bench.commit()
    assert bench.outcomes == [("a", [])]
    bench.commit()
    bench.commit()
    assert bench.outcomes == [("a", []), ("x", []), ("b", ["a"]), ("read", ["a", "x", "b"])]
    assert not bench.runtime.is_busy("k")


def test_after_a_failed_write_the_next_waits_until_all_is_decided(bench: Bench) -> None:
    bench.write("k", "a")
    bench.write("k", "b")
    bench.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert bench.outcomes == [("a", "COORDINATOR_NOT_AVAILABLE")]
    assert [records for _, records, _ in bench.writes] == [[]]
    bench.commit()
    bench.commit()
    assert bench.outcomes[1:] == [("b", [])]


def test_a_rejection_and_a_fault_of_one_leave_the_others_alone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def reject() -> CoordinatorResult:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, "no")

    def fail() -> CoordinatorResult:
        raise KeyError("bug")

    bench.write("k", "a")
    for operation in (reject, fail):
        bench.runtime.schedule("k", operation, lambda response, error: bench._note("x", response, error))
    bench.write("k")
    bench.commit()
    names = [outcome for _, outcome in bench.outcomes]
    assert names == [[], "UNKNOWN_MEMBER_ID", "UNKNOWN_SERVER_ERROR", ["a"]]
    assert "an operation failed" in caplog.text


def test_what_waits_is_rejected_at_the_end(bench: Bench) -> None:
    bench.write("k", "a")
    bench.write("k", "b")
    bench.runtime.close(lambda: RequestError(ErrorCode.NOT_COORDINATOR, "lost"))
    assert bench.outcomes == [("b", "NOT_COORDINATOR")]
    bench.commit(ErrorCode.NOT_COORDINATOR)
    assert bench.outcomes[1:] == [("a", "NOT_COORDINATOR")]
    assert bench.writes == []


def test_many_operations_leave_the_loop_to_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_runtime, "MAX_RUN_AT_ONCE", 2)
    bench.write("k", "a")
    for _ in range(5):
        bench.write("k")
    bench.commit()
    assert len(bench.outcomes) == 3
    bench.write("k", "b")  # behind the others
    bench.loop.turn()
    assert len(bench.outcomes) == 6
    bench.commit()
    assert bench.outcomes[-1] == ("b", ["a"])


def test_a_queue_has_an_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_runtime, "MAX_QUEUED", 1)
    for record in ("a", "b", "c"):
        bench.write("k", record)
    assert bench.outcomes == [("c", "COORDINATOR_NOT_AVAILABLE")]


def test_a_response_that_fails_does_not_stop_the_next(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def fail(response: Any, error: RequestError | None) -> None:
        raise ValueError("bug")

    bench.runtime.schedule("k", lambda: CoordinatorResult(["a"]), fail)
    bench.write("k", "b")
    bench.commit()
    bench.commit()
    assert bench.outcomes == [("b", ["a"])]
    assert "a response failed" in caplog.text
