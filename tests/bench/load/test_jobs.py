"""The load generator against small servers that answer well, badly, or in pieces."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from array import array
from collections.abc import Callable, Iterator

import pytest

from bench.load.backlog import fill
from bench.load.closed_loop import closed_loop, templates_for
from bench.load.first_ack import first_ack
from bench.load.latency import quantiles
from bench.load.wire import WrongAnswer, record_batch
from tests.bench.load.test_wire import produce_response

Answer = Callable[[int, int], list[bytes]]
"""(correlation id, number of the request on its connection) -> the pieces to send, with a pause between."""


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[int]:
    """A server that answers each frame with what `answer` says; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock, sock.makefile("rb") as stream:
            number = 0
            while head := stream.read(4):
                frame = stream.read(int.from_bytes(head, "big"))
                number += 1
                for piece in answer(struct.unpack_from(">i", frame, 4)[0], number):
                    sock.sendall(piece)
                    time.sleep(0.001)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                threading.Thread(target=serve, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def _job(port: int, **words: object) -> dict[str, object]:
    return {
        "host": "127.0.0.1",
        "port": port,
        "topic": "t",
        "record_bytes": 16,
        "partitions": 1,
        "records": 1,
        "spread": "turns",
        "warmup_s": 0.05,
        "seconds": 0.15,
        **words,
    }


@pytest.mark.parametrize("producers", [1, 4])
def test_a_stall_at_the_end_is_in_the_latencies_and_not_in_the_rate(producers: int) -> None:
    def stalling(correlation_id: int, number: int) -> list[bytes]:
        if number == 10:
            time.sleep(1.2)
        return [bytes(produce_response(b"t", correlation_id, [0]))]

    with serving(stalling) as port:
        result = closed_loop(_job(port, producers=producers, warmup_s=0.0, seconds=1.0))
    assert result["max_ms"] >= 1190
    assert result["requests"] == 9 * producers, "what was answered within"
    assert result["requests_per_s"] == pytest.approx(9 * producers)


@pytest.mark.parametrize("producers", [1, 4])
def test_every_acknowledged_request_is_counted_and_only_the_window_is_measured(producers: int) -> None:
    answered = 0

    def answer(correlation_id: int, number: int) -> list[bytes]:
        nonlocal answered
        answered += 1
        whole = bytes(produce_response(b"t", correlation_id, [0]))
        return [whole[:3], whole[3:20], whole[20:]]

    with serving(answer) as port:
        result = closed_loop(_job(port, producers=producers))
    assert result["total_requests"] == answered == result["total_records"]
    assert 0 < result["requests"] < answered
    assert result["p50_ms"] >= 2.0
    assert result["p50_ms"] <= result["p99_ms"] <= result["max_ms"]


def test_an_error_code_ends_the_run() -> None:
    def answer(correlation_id: int, number: int) -> list[bytes]:
        return [bytes(produce_response(b"t", correlation_id, [0 if number < 5 else 7]))]

    with serving(answer) as port, pytest.raises(WrongAnswer, match="error code 7"):
        closed_loop(_job(port, producers=2))


def test_a_swapped_correlation_id_ends_the_run() -> None:
    with (
        serving(lambda correlation_id, _: [bytes(produce_response(b"t", correlation_id + 1, [0]))]) as port,
        pytest.raises(WrongAnswer, match="correlation id"),
    ):
        closed_loop(_job(port, producers=1))


def test_fill_pipelines_and_checks_every_answer() -> None:
    held: list[bytes] = []

    def answer(correlation_id: int, number: int) -> list[bytes]:
        held.append(bytes(produce_response(b"t", correlation_id, [0])))
        if len(held) < 3:
            return []
        pieces = b"".join(held)
        held.clear()
        return [pieces[:7], pieces[7:]]

    with serving(answer) as port:
        wanted = 9 * len(record_batch(1, 16, 0)) - 1
        result = fill(_job(port, window=3, total_bytes=wanted))
    assert result["total_requests"] == result["total_records"] == 9
    assert result["bytes"] == wanted + 1


def test_first_ack_retries_until_the_broker_agrees() -> None:
    calls = 0

    def answer(correlation_id: int, number: int) -> list[bytes]:
        nonlocal calls
        calls += 1
        return [bytes(produce_response(b"t", correlation_id, [6 if calls < 3 else 0]))]

    before = time.monotonic_ns()
    with serving(answer) as port:
        result = first_ack(_job(port, timeout_s=10.0))
    assert result["attempts"] == 3
    assert before < result["acked_ns"] < time.monotonic_ns()


def test_quantiles_are_nearest_rank() -> None:
    figures = quantiles(array("q", [value * 1_000_000 for value in range(1, 101)]))
    assert (figures["p50_ms"], figures["p99_ms"], figures["max_ms"]) == (51.0, 100.0, 100.0)
    assert figures["mean_ms"] == 50.5


def test_span_sends_one_record_to_every_partition() -> None:
    (template,) = templates_for("t", 16, 16, "span", 1)
    assert template.records == 16
    turns = templates_for("t", 16, 16, "turns", 1)
    assert [each.records for each in turns] == [1] * 16
