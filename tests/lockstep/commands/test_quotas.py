"""`lockstep quotas`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import lockstep.testing
from tests.lockstep.conftest import Run


@pytest.fixture(scope="module")
def running() -> Iterator[lockstep.testing.RunningBroker]:
    with lockstep.testing.broker_in_thread(log_flush="os") as broker:
        yield broker


def test_the_life_of_a_quota(command: Run) -> None:
    assert command("quotas", "list") == (0, "no quotas\n", "")
    who = ("--user", "CN=alice", "--client-id-default")
    done = command("quotas", "set", *who, "producer_byte_rate=50000", "request_percentage=12.5")
    assert done == (
        0,
        "set: producer_byte_rate=50000 of user CN=alice, client-id (default)\n"
        "set: request_percentage=12.5 of user CN=alice, client-id (default)\n",
        "",
    )
    command("quotas", "set", "--ip", "192.0.2.7", "connection_creation_rate=10")
    shown = [line.split("  ") for line in command("quotas", "list").out.splitlines()]
    assert [[cell.strip() for cell in line if cell.strip()] for line in shown] == [
        ["OF", "QUOTA", "VALUE"],
        ["ip 192.0.2.7", "connection_creation_rate", "10"],
        ["user CN=alice, client-id (default)", "producer_byte_rate", "50000"],
        ["user CN=alice, client-id (default)", "request_percentage", "12.5"],
    ]
    listed = command("quotas", "list", "--user", "CN=alice", "--json").out.splitlines()
    assert [json.loads(line) for line in listed] == [
        {
            "entity": {"user": "CN=alice", "client-id": None},
            "quotas": {"producer_byte_rate": 50000.0, "request_percentage": 12.5},
        }
    ]
    removed = command("quotas", "remove", *who, "producer_byte_rate", "request_percentage")
    assert removed.out.splitlines()[0] == "removed: producer_byte_rate of user CN=alice, client-id (default)"
    assert command("quotas", "list", "--user", "CN=alice").out == "no quotas\n"
    assert "192.0.2.7" in command("quotas", "list", "--ip", "192.0.2.7").out


def test_what_the_broker_rejects(command: Run) -> None:
    unknown = command("quotas", "set", "--user", "a", "no_such_rate=5")
    assert unknown.status == 1 and "Invalid configuration key no_such_rate" in unknown.err
    mixed = command("quotas", "set", "--user", "a", "--ip", "192.0.2.7", "connection_creation_rate=5")
    assert mixed.status == 1 and "IP entity" in mixed.err
    assert "greater than 0" in command("quotas", "set", "--user", "a", "producer_byte_rate=0").err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("set", "producer_byte_rate=5"), "--user, --client-id or --ip is missing"),
        (("remove", "producer_byte_rate"), "--user, --client-id or --ip is missing"),
        (("set", "--user", "a", "producer_byte_rate"), "is not KEY=NUMBER"),
        (("set", "--user", "a", "producer_byte_rate=fast"), "is not KEY=NUMBER"),
        (("set", "--user", "a", "--user-default", "producer_byte_rate=5"), "not allowed with argument"),
    ],
)
def test_wrong_usage(command: Run, words: tuple[str, ...], reason: str) -> None:
    done = command("quotas", *words)
    assert done.status == 2 and reason in done.err
