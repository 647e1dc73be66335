"""Several brokers are named, and some are down, silent, or go away later."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest

from lockstep.kafka_client import groups
from lockstep.kafka_client.bootstrap import ATTEMPT_S, call_timeout_s, connect_to_first
from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import BrokerConnection, ConnectionFailed, TimedOut
from lockstep.kafka_client.security import WITHOUT_SECURITY
from lockstep.protocol.messages.list_groups import ListGroupsRequest
from lockstep.testing import RunningBroker
from tests.lockstep.conftest import Run


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections, and never answers: a stopped process."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as made:
        yield f"127.0.0.1:{made.getsockname()[1]}"


async def test_the_last_one_gets_what_is_left() -> None:
    allowed: list[float] = []

    async def connect(host: str, port: int, within_s: float) -> BrokerConnection:
        allowed.append(within_s)
        raise TimedOut(f"{host}:{port} did not respond in {within_s:g} s")

    with pytest.raises(TimedOut, match=r"^a:1 did not respond in 3 s; b:2 did not respond in 3 s; c:3 did"):
        await connect_to_first([("a", 1), ("b", 2), ("c", 3)], connect, 30.0)
    assert allowed == pytest.approx([ATTEMPT_S, ATTEMPT_S, 30.0], abs=1.0)
    allowed.clear()
    with pytest.raises(TimedOut):
        await connect_to_first([("a", 1), ("b", 2)], connect, 2.0)
    assert allowed == pytest.approx([1.0, 2.0], abs=0.5)
    with pytest.raises(TimedOut, match=r"^a:1 did not respond in [\d.]+ s$"):
        await connect_to_first([("a", 1)], connect, 30.0)


def test_a_question_waits_longer_where_nobody_else_can_answer() -> None:
    assert call_timeout_s(30.0, 0) == 30.0
    assert call_timeout_s(30.0, 2) == 10.0
    assert call_timeout_s(5.0, 2) == ATTEMPT_S
    assert call_timeout_s(1.0, 2) == 1.0


async def test_a_silent_broker_is_left_for_the_next(running: RunningBroker, silent: str) -> None:
    async with asyncio.timeout(25), Client(f"{silent},{running.bootstrap_servers}", timeout_s=30) as client:
        await client.topics()


async def test_a_broker_that_falls_silent_later_is_left_for_the_next(
    running: RunningBroker, silent: str
) -> None:
    host, port = silent.split(":")
    async with Client(f"{silent},{running.bootstrap_servers}", timeout_s=8) as client:
        hung = BrokerConnection(host, int(port), "test", 8, WITHOUT_SECURITY)
        connected = await BrokerConnection.open("127.0.0.1", running.port)
        hung._protocol, hung._wire = connected._protocol, connected._wire
        connected._open_wire().transport.write = lambda data: None  # type: ignore[method-assign]
        client._first = hung
        await client.topics()
        assert client._first is not hung


async def test_groups_are_requested_again_where_a_node_has_just_ended(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster names it for some seconds."""
    real, asked = BrokerConnection.call, 0

    async def call(connection: BrokerConnection, request: object, *more: object, **named: object) -> object:
        nonlocal asked
        if isinstance(request, ListGroupsRequest):
            asked += 1
            if asked == 1:
                raise ConnectionFailed("cannot connect to gone:1: connection refused")
        return await real(connection, request, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(BrokerConnection, "call", call)
    async with Client(running.bootstrap_servers) as client:
        await groups.list_groups(client)
    assert asked == 2


FIRST_WORDS = (
    "topics list",
    "groups list",
    "groups describe g",
    "produce t",
    "consume t",
)


@pytest.mark.parametrize("words", [*FIRST_WORDS, "cluster status", "configs describe topic t"])
def test_a_silent_broker_ends_a_command_in_time(command: Run, silent: str, words: str) -> None:
    began = time.monotonic()
    outcome = command(*words.split(), "-b", silent, "--timeout", "0.5")
    assert time.monotonic() - began < 4
    assert outcome == (1, "", outcome.err) and outcome.err.count("\n") == 1
    assert f"{silent} did not respond in 0.5 s" in outcome.err


@pytest.mark.parametrize("words", FIRST_WORDS)
def test_refused_connections_are_reported_at_once_with_all_names(command: Run, words: str) -> None:
    began = time.monotonic()
    outcome = command(*words.split(), "-b", "localhost:1,localhost:2")
    assert time.monotonic() - began < 4
    refused = "cannot connect to localhost:1, localhost:2: connection refused; is a broker running there?"
    assert outcome.status == 1 and outcome.err.startswith(f"lockstep: {refused}")
    assert outcome.err.count("\n") == 1


def test_a_producer_waits_for_a_broker_that_is_silent_at_first(command: Run, silent: str) -> None:
    """As long as --timeout says, which is longer than a leader is waited for."""
    outcome = command("produce", "t", "-b", silent, "--timeout", "6.5")
    first, last = outcome.err.splitlines()
    assert first.endswith("; still trying") and last.startswith(f"lockstep: {silent} did not respond in")
