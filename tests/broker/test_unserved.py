"""Who waits for what is not served yet is told once, on one line, and not too often."""

from __future__ import annotations

import pytest

from broker.unserved import CLIENTS_REMEMBERED, LINES_PER_MINUTE, Unserved
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.wire import Client


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    caplog.clear()
    return found


def test_once_per_client(caplog: pytest.LogCaptureFixture) -> None:
    unserved = Unserved(Clock())
    for _ in range(3):
        unserved.asked("rdkafka", "t")
        unserved.asked(None, "u")
    first, second = lines(caplog)
    assert first.startswith("client rdkafka asks for transactional id t: transactions are not served yet")
    assert second.startswith("client without a name asks for transactional id u")


def test_what_a_client_sends_stays_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    Unserved(Clock()).asked("evil\n2026 CRITICAL", "g" * 10_000)
    (line,) = lines(caplog)
    assert "evil?2026 CRITICAL" in line and "\n" not in line and len(line) < 400


def test_a_flood_of_names_is_bounded_and_nobody_is_left_out_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    unserved = Unserved(clock)
    waiting = [f"client-{number}" for number in range(CLIENTS_REMEMBERED // 2)]
    named = 0
    for _ in range(len(waiting) // LINES_PER_MINUTE):
        for client in waiting:
            unserved.asked(client, "g")
        told = len(lines(caplog))
        assert told == LINES_PER_MINUTE
        named += told
        clock.now += 60
    assert named == len(waiting)
    for client in waiting:
        unserved.asked(client, "g")
    assert lines(caplog) == []
    for number in range(CLIENTS_REMEMBERED):
        clock.now += 60
        unserved.asked(f"later-{number}", "g")
    assert len(unserved._told) == CLIENTS_REMEMBERED


@pytest.mark.parametrize("version", [0, 3, 4, 6])
async def test_find_coordinator_says_who_waits(
    client: Client, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    for kind in (0, 1):
        name = FindCoordinatorRequest(key="k") if version < 4 else FindCoordinatorRequest()
        if version >= 4:
            name.coordinator_keys = ["k"]
        if version >= 1:
            name.key_type = kind
        await client.call(name, version)
    told = [line.split(":")[0] for line in lines(caplog)]
    assert told == ["client test asks for transactional id k"] * (version >= 1)


async def test_init_producer_id_says_who_waits(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
    await client.call(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1), 4)
    assert lines(caplog) == []
    await client.call(InitProducerIdRequest(transactional_id="pay", transaction_timeout_ms=1), 4)
    (line,) = lines(caplog)
    assert line.startswith("client test asks for transactional id pay: ")
