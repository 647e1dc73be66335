"""What the exactly-once campaigns call exact: every fault planted into a result is found."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from tests.campaigns import evidence, killed_brokers, streams, transforming
from tests.campaigns.exactly_once import differences
from tests.support.cases import each_case

WANTED = [b"0!", b"1!", b"2!", b"3!"]


@each_case(
    ("found", "said"),
    [
        ([b"0!", b"1!", b"3!"], "1 missing, first b'2!'"),
        ([b"0!", b"1!", b"1!", b"2!", b"3!"], "1 more than once, first b'1!'"),
        ([b"0!", b"1!", b"2!", b"3!", b"4!"], "1 never written, first b'4!'"),
        ([b"0!", b"2!", b"1!", b"3!"], "in another order"),
        ([b"0!", b"1!", b"2!", b"3!", None], "1 never written, first None"),
        ([], "4 missing, first b'0!'"),
    ],
)
def test_a_result_that_is_not_exact_is_described(found: list[bytes | None], said: str) -> None:
    assert list(differences("t-0", WANTED, found)) == [f"t-0: {said}"]


def test_several_faults_are_all_described_and_an_exact_result_is_not() -> None:
    assert len(list(differences("t-0", WANTED, [b"0!", b"0!", b"x"]))) == 3
    assert list(differences("t-0", WANTED, list(WANTED))) == []


def test_a_call_that_does_not_return_is_left_alone() -> None:
    never = threading.Event()
    with pytest.raises(transforming.Stuck, match="wait has not returned"):
        transforming.returning(never.wait, 5, patience_s=0.05)
    never.set()
    done: list[int] = []
    transforming.returning(done.append, 1)
    assert done == [1]
    with pytest.raises(ZeroDivisionError):
        transforming.returning(divmod, 1, 0)


class Failing:
    """A client that cannot end."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def stop(self) -> None:
        raise self._error


async def test_a_client_that_fails_to_end_ends_no_worker() -> None:
    for error in (OSError(), TimeoutError(), asyncio.CancelledError()):
        await transforming.ended(Failing(error))


def test_a_count_that_stands_still_falls_or_differs_is_found() -> None:
    counts = streams.Counts.__new__(streams.Counts)
    counts.last, counts.updates, counts.problems = Counter(), 0, []
    for word, count in (("a", 1), ("a", 3), ("b", 2)):
        counts.take(word, count)
    assert (counts.problems, counts.updates) == ([], 3)
    assert streams.compared(Counter(a=3, b=2), counts.last) == []
    assert streams.compared(Counter(a=3, b=1, c=1), counts.last) == [
        "b: counted 2, written 1",
        "c: counted 0, written 1",
    ]
    counts.take("a", 3)
    counts.take("b", 1)
    assert counts.problems == ["a: 3 after 3", "b: 1 after 2"]


def test_only_a_sound_run_of_this_source_that_is_as_large_is_on_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = {"source": evidence.source_digest(), "target": "lockstep", "nodes": 1, "exact": True, "kills": 5}
    runs: list[dict[str, object]] = []
    monkeypatch.setattr(evidence, "load_runs", lambda _: runs)
    asked = killed_brokers.parser("any", "", "records", 100, 5).parse_args
    run = {**sound, "records": 100}
    for change in ({"source": "x"}, {"target": "kafka"}, {"nodes": 3}, {"exact": False}, {"kills": 4}):
        runs[:] = [{**run, **change}]
        assert not killed_brokers.is_on_record("any", asked([]))
    runs[:] = [run]
    assert killed_brokers.is_on_record("any", asked([]))
    assert not killed_brokers.is_on_record("any", asked(["--records", "101"]))
