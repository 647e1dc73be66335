"""Closed loops against small servers that answer well, badly, or in pieces."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.load import closed_loop as module
from bench.load.closed_loop import closed_loop, templates_for
from bench.load.latency import quantiles
from bench.load.wire import UnexpectedResponse
from tests.bench.load.serving import Answer, job, serving
from tests.bench.load.test_wire import produce_response


class Clock:
    """In place of the loop's `time`: it goes on when it is told to, so that no machine is too slow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        monkeypatch.setattr(module, "time", self)

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def time_ns(self) -> int:
        return 1_700_000_000 * 10**9 + self.now_ns

    def goes_on(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("producers", [1, 4])
def test_a_stall_at_the_end_is_in_the_latencies_and_not_in_the_rate(
    producers: int, tmp_path: Path, clock: Clock
) -> None:
    stall = threading.Barrier(producers, lambda: clock.goes_on(1.2))

    def stalling(correlation_id: int, number: int) -> list[bytes]:
        if number == 10:
            stall.wait(60)  # for all: who has not sent its tenth by then would not send it any more
        return [bytes(produce_response(b"t", correlation_id, [0]))]

    with serving(stalling) as port:
        keep = str(tmp_path / "raw")
        result = closed_loop(job(port, producers=producers, warmup_s=0.0, seconds=1.0, keep=keep))
    assert result["max_ms"] == 1200
    raw = array("q")
    raw.frombytes(Path(keep).read_bytes())
    assert len(raw) == 10 * producers and max(raw) == pytest.approx(result["max_ms"] * 1e6)
    assert result["requests"] == 9 * producers, "what was answered within"
    assert result["requests_per_s"] == pytest.approx(9 * producers)


@pytest.mark.parametrize("producers", [1, 4])
def test_every_acknowledged_request_is_counted_and_only_the_window_is_measured(
    producers: int, clock: Clock
) -> None:
    """Each answer comes in three pieces, 1 ms apart: 10 answers are the warm-up, 20 the window."""
    answered = 0
    counting = threading.Lock()
    together = threading.Barrier(producers, lambda: clock.goes_on(0.001))

    def response(correlation_id: int, number: int) -> Iterator[bytes]:
        nonlocal answered
        with counting:
            answered += 1
        whole = bytes(produce_response(b"t", correlation_id, [0]))
        for piece in (whole[:3], whole[3:20], whole[20:]):
            together.wait(60)
            yield piece

    with serving(response) as port:
        result = closed_loop(job(port, producers=producers, warmup_s=0.03, seconds=0.06))
    assert result["total_requests"] == answered == result["total_records"]
    assert answered == 30 * producers and result["requests"] == 20 * producers
    assert result["p50_ms"] == result["p99_ms"] == result["max_ms"] == 3.0


def test_an_error_code_ends_the_run() -> None:
    def response(correlation_id: int, number: int) -> list[bytes]:
        return [bytes(produce_response(b"t", correlation_id, [0 if number < 5 else 7]))]

    with serving(response) as port, pytest.raises(UnexpectedResponse, match="error code 7"):
        closed_loop(job(port, producers=2))


def test_a_swapped_correlation_id_ends_the_run() -> None:
    with (
        serving(lambda correlation_id, _: [bytes(produce_response(b"t", correlation_id + 1, [0]))]) as port,
        pytest.raises(UnexpectedResponse, match="correlation id"),
    ):
        closed_loop(job(port, producers=1))


def test_span_sends_one_record_to_every_partition() -> None:
    (template,) = templates_for("t", 16, 16, "span", 1)
    assert template.records == 16
    turns = templates_for("t", 16, 16, "turns", 1)
    assert [each.records for each in turns] == [1] * 16


def test_each_producer_keeps_to_the_leader_of_its_partition() -> None:
    seen: dict[str, set[int]] = {"a": set(), "b": set()}

    def at(name: str) -> Answer:
        def response(correlation_id: int, number: int) -> list[bytes]:
            seen[name].add(threading.get_ident())
            return [bytes(produce_response(b"t", correlation_id, [0]))]

        return response

    with serving(at("a")) as first, serving(at("b")) as second:
        words = {"partitions": 2, "records": 1, "spread": "turns", "warmup_s": 0.0, "seconds": 0.1}
        closed_loop(job(first, ports=[first, second], producers=6, **words))
    assert (len(seen["a"]), len(seen["b"])) == (3, 3)


def test_quantiles_are_nearest_rank() -> None:
    figures = quantiles(array("q", [value * 1_000_000 for value in range(1, 101)]))
    assert (figures["p50_ms"], figures["p99_ms"], figures["max_ms"]) == (51.0, 100.0, 100.0)
    assert figures["mean_ms"] == 50.5


def test_quantiles_are_named_as_tables_want_them() -> None:
    assert {"mean_ms", "p50_ms", "p90_ms", "p99_ms"} <= quantiles(array("q", [1])).keys()
