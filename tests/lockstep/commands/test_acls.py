"""`lockstep acls`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import lockstep.testing
from tests.lockstep.conftest import Run


@pytest.fixture(scope="module")
def running() -> Iterator[lockstep.testing.RunningBroker]:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with lockstep.testing.broker_in_thread(
        log_flush="os", authorizer_class_name=authorizer, super_users="User:ANONYMOUS"
    ) as broker:
        yield broker


def rows(command: Run, *words: str) -> list[tuple[str, ...]]:
    listed = command("acls", "list", "--json", *words)
    assert (listed.status, listed.err) == (0, "")
    return [tuple(json.loads(line).values()) for line in listed.out.splitlines()]


def test_the_life_of_an_acl(command: Run) -> None:
    reads = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    assert command("acls", "list", "--topic", "orders").out == "no ACLs\n"
    added = command("acls", "add", *reads, "--allow-host", "10.0.0.0/8")
    assert added == (0, "added: ALLOW READ on LITERAL TOPIC orders to User:alice from 10.0.0.0/8\n", "")
    assert rows(command, "--topic", "orders") == [
        ("TOPIC", "orders", "LITERAL", "User:alice", "10.0.0.0/8", "READ", "ALLOW")
    ]
    shown = command("acls", "list", "--topic", "orders").out.splitlines()
    assert shown[0].split() == ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"]
    assert shown[1].split() == ["TOPIC", "orders", "LITERAL", "User:alice", "10.0.0.0/8", "READ", "ALLOW"]
    assert command("acls", "remove", "--force", "--topic", "orders", "--allow-principal", "User:bob") == (
        0,
        "no such ACLs\n",
        "",
    )
    removed = command("acls", "remove", "--force", *reads)
    assert removed.out == "removed: ALLOW READ on LITERAL TOPIC orders to User:alice from 10.0.0.0/8\n"
    assert rows(command, "--topic", "orders") == []


def test_a_producer_and_a_consumer(command: Run) -> None:
    who = ("--allow-principal", "User:carol", "--topic", "parcels")
    command("acls", "add", *who, "--producer", "--transactional-id", "van", "--idempotent")
    command("acls", "add", *who, "--consumer", "--group", "couriers")
    found = rows(command, "--principal", "User:carol")
    assert {(kind, name, operation) for kind, name, _, _, _, operation, _ in found} == {
        ("TOPIC", "parcels", "WRITE"),
        ("TOPIC", "parcels", "DESCRIBE"),
        ("TOPIC", "parcels", "CREATE"),
        ("TOPIC", "parcels", "READ"),
        ("GROUP", "couriers", "READ"),
        ("TRANSACTIONAL_ID", "van", "WRITE"),
        ("TRANSACTIONAL_ID", "van", "DESCRIBE"),
        ("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
    }
    gone = command("acls", "remove", "--force", *who, "--consumer", "--group", "couriers", "--json")
    assert {json.loads(line)["operation"] for line in gone.out.splitlines()} == {"READ", "DESCRIBE"}
    assert len(rows(command, "--principal", "User:carol")) == len(found) - 3


def test_patterns_and_denials(command: Run) -> None:
    deny = ("--deny-principal", "User:dave", "--deny-host", "10.1.1.1", "--operation", "describe_configs")
    assert command("acls", "add", *deny, "--topic", "led", "--resource-pattern-type", "PREFIXED").status == 0
    expected = ("TOPIC", "led", "PREFIXED", "User:dave", "10.1.1.1", "DESCRIBE_CONFIGS", "DENY")
    assert rows(command, "--topic", "ledger", "--resource-pattern-type", "match") == [expected]
    assert rows(command, "--topic", "ledger") == []
    every = command("acls", "remove", "--force", "--topic", "led", "--resource-pattern-type", "prefixed")
    assert every.out == "removed: DENY DESCRIBE_CONFIGS on PREFIXED TOPIC led to User:dave from 10.1.1.1\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("add", "--topic", "t"), "--allow-principal or --deny-principal is missing"),
        (("add", "--allow-principal", "User:a"), "a resource is missing"),
        (("add", "--allow-principal", "a", "--topic", "t"), "'a' has no type: User:a"),
        (("add", "--allow-principal", "User:a", "--producer"), "need --topic"),
        (("add", "--allow-principal", "User:a", "--consumer", "--topic", "t"), "needs --group"),
        (("add", "--allow-host", "1.2.3.4", "--topic", "t"), "--allow-host needs --allow-principal"),
        (("remove", "--operation", "Raed", "--topic", "t"), "'Raed' is none of ALL, READ, WRITE"),
        (("remove",), "a resource is missing"),
        (("add", "--allow-principal", "User:a", "--topic", "t", "--idempotent"), "needs --producer"),
        (("add", "--allow-principal", "User:a", "--cluster", "--idempotent"), "needs --producer"),
        (("remove", "--topic", "t", "--group", "g", "--consumer", "--idempotent"), "needs --producer"),
    ],
)
def test_wrong_usage(command: Run, words: tuple[str, ...], reason: str) -> None:
    refused = command("acls", *words)
    assert refused.status == 2 and reason in refused.err and refused.out == ""


def test_what_the_broker_rejects(command: Run) -> None:
    refused = command("acls", "add", "--allow-principal", "User:a", "--allow-host", "a-name", "--topic", "t")
    assert refused.status == 1 and "ALLOW ALL on LITERAL TOPIC t to User:a from a-name: " in refused.err


def test_a_removal_is_confirmed_first(command: Run) -> None:
    added = ("--allow-principal", "User:erin", "--topic", "mail", "--allow-host", "10.0.0.1")
    command("acls", "add", *added, "--allow-host", "10.0.0.2")
    for stdin in (b"n\n", b"", b"\n"):
        refused = command("acls", "remove", "--topic", "mail", stdin=stdin)
        assert refused.status == 1 and refused.out == "" and "nothing is removed" in refused.err
        assert "ANY ANY on LITERAL TOPIC mail to anyone from any host" in refused.err
    assert len(rows(command, "--topic", "mail")) == 2
    removed = command("acls", "remove", "--topic", "mail", stdin=b"y\n")
    assert removed.status == 0 and removed.out.splitlines() == [
        f"removed: ALLOW ALL on LITERAL TOPIC mail to User:erin from 10.0.0.{each}" for each in (1, 2)
    ]
    assert rows(command, "--topic", "mail") == []
