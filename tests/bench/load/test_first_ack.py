"""The first acknowledgement: of a broker that starts, of whoever takes over from a leader that is lost."""

from __future__ import annotations

import time

import pytest

from bench.load.first_ack import first_ack, leader_loss
from bench.load.wire import UnexpectedResponse
from tests.bench.load.serving import job, serving
from tests.bench.load.test_wire import produce_response


def test_first_ack_retries_until_the_broker_agrees() -> None:
    calls = 0

    def response(correlation_id: int, number: int) -> list[bytes]:
        nonlocal calls
        calls += 1
        return [bytes(produce_response(b"t", correlation_id, [6 if calls < 3 else 0]))]

    before = time.monotonic_ns()
    with serving(response) as port:
        result = first_ack(job(port, timeout_s=10.0))
    assert result["attempts"] == 3
    assert before < result["acked_ns"] < time.monotonic_ns()


def test_a_broker_that_never_acknowledges_is_reported() -> None:
    with (
        serving(lambda correlation_id, _: [bytes(produce_response(b"t", correlation_id, [6]))]) as port,
        pytest.raises(UnexpectedResponse, match=r"no record acknowledged within 0\.2 s$"),
    ):
        first_ack(job(port, timeout_s=0.2))


def _lost_leader(correlation_id: int, number: int) -> list[bytes]:
    """It takes three records and is gone."""
    if number > 3:
        raise OSError("gone")
    return [bytes(produce_response(b"t", correlation_id, [0]))]


def test_the_loss_of_a_leader_ends_with_the_next_acknowledgement() -> None:
    refused = 0

    def other(correlation_id: int, number: int) -> list[bytes]:
        nonlocal refused
        refused += 1
        return [bytes(produce_response(b"t", correlation_id, [6 if refused < 4 else 0]))]

    with serving(_lost_leader) as first, serving(other) as second:
        result = leader_loss(job(1, ports=[first, second], timeout_s=20.0))
    assert (result["acked"], result["attempts"]) == (4, 4)
    assert result["last_ack_ns"] < result["lost_ns"] < result["acked_ns"] < time.monotonic_ns()


def test_a_leader_that_takes_nothing_is_no_leader() -> None:
    with (
        serving(lambda correlation_id, _: [bytes(produce_response(b"t", correlation_id, [6]))]) as port,
        pytest.raises(UnexpectedResponse, match="took nothing"),
    ):
        leader_loss(job(1, ports=[port, port], timeout_s=0.3))


def test_a_leader_that_stays_is_not_lost() -> None:
    with (
        serving(lambda correlation_id, _: [bytes(produce_response(b"t", correlation_id, [0]))]) as port,
        pytest.raises(UnexpectedResponse, match=r"the leader was not lost within 0\.2 s"),
    ):
        leader_loss(job(1, ports=[port, port], timeout_s=0.2))


def test_a_missing_successor_is_reported() -> None:
    with (
        serving(_lost_leader) as first,
        serving(lambda correlation_id, _: [bytes(produce_response(b"t", correlation_id, [6]))]) as second,
        pytest.raises(UnexpectedResponse, match=r"within 1\.0 s of the leader's loss"),
    ):
        leader_loss(job(1, ports=[first, second], timeout_s=1.0))
