"""`lockstep configs`."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator

import pytest

from lockstep.commands.options import print_table
from tests.lockstep.conftest import Run


@pytest.fixture(autouse=True)
def _as_before(command: Run) -> Iterator[None]:
    """The broker serves the other tests, too."""
    yield
    for name in ([], ["1"]):
        command("configs", "alter", "broker", *name, "--delete", "log.retention.ms")


def test_a_topics_life(command: Run, topic: str) -> None:
    command("topics", "create", topic)
    assert command("configs", "describe", "topic", topic, "--all").out.count("\n") > 15
    changed = command("configs", "alter", "topic", topic, "retention.ms=5", "retention.bytes=6")
    assert changed == (0, f"topic {topic}: changed\n", "")
    lines = command("configs", "describe", "topic", topic).out.splitlines()
    rows = {tuple(line.split()) for line in lines}
    assert {("retention.bytes", "6", "topic"), ("retention.ms", "5", "topic")} <= rows
    command("configs", "alter", "topic", topic, "retention.ms=7", "--delete", "retention.bytes")
    found = [
        json.loads(line) for line in command("configs", "describe", "topic", topic, "--json").out.splitlines()
    ]
    assert [each for each in found if each["source"] == "topic"] == [
        {"name": "retention.ms", "value": "7", "source": "topic", "default": False, "fixed": False}
    ]


def test_a_check_changes_nothing(command: Run, topic: str) -> None:
    command("topics", "create", topic)
    checked = command("configs", "alter", "topic", topic, "retention.ms=5", "--check")
    assert checked == (0, f"topic {topic}: this could be done\n", "")
    assert "retention.ms" not in command("configs", "describe", "topic", topic).out


def test_brokers(command: Run) -> None:
    assert command("configs", "describe", "broker").out == "nothing but defaults\n"
    assert command("configs", "alter", "broker", "log.retention.ms=5").out == "all brokers: changed\n"
    assert command("configs", "describe", "broker").out.splitlines()[1].split()[:2] == [
        "log.retention.ms",
        "5",
    ]
    assert command("configs", "alter", "broker", "1", "log.retention.ms=6").out == "broker 1: changed\n"
    own = command("configs", "describe", "broker", "1").out
    assert "this broker, changed while running" in own
    assert "num.partitions" not in own
    assert "num.partitions" in command("configs", "describe", "broker", "1", "--all").out


def test_a_setting_of_kafkas_without_effect_is_kept(command: Run) -> None:
    assert command("configs", "alter", "broker", "1", "num.io.threads=4").out == "broker 1: changed\n"
    assert "num.io.threads" in command("configs", "describe", "broker", "1").out
    assert command("configs", "alter", "broker", "1", "-d", "num.io.threads").status == 0
    assert "num.io.threads" not in command("configs", "describe", "broker", "1").out


def test_a_group(command: Run, topic: str) -> None:
    name = "consumer.session.timeout.ms"
    assert command("configs", "describe", "group", topic).out == "nothing but defaults\n"
    assert command("configs", "alter", "group", topic, f"{name}=50000").out == f"group {topic}: changed\n"
    assert command("configs", "describe", "group", topic).out.splitlines()[1].split() == [
        name,
        "50000",
        "group",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("alter", "topic", "no-such-topic", "retention.ms=5"), "there is no such topic"),
        (("describe", "topic", "no-such-topic"), "there is no such topic"),
        (
            ("alter", "broker", "num.partitions=5"),
            "Cannot update these configs dynamically: [num.partitions] (",
        ),
        (("alter", "broker", "7", "log.retention.ms=5"), "node 7: there is no such node, known are [1] ("),
        (("describe", "broker", "9"), "node 9: there is no such node, known are [1] ("),
        (("alter", "broker", "x", "log.retention.ms=5"), "must be an integer"),
        (("alter", "group", "g", "no.such=1"), "no.such"),
    ],
)
def test_refusals_are_one_line_and_status_1(command: Run, arguments: tuple[str, ...], said: str) -> None:
    outcome = command("configs", *arguments)
    assert outcome.status == 1 and said in outcome.err and outcome.err.count("\n") == 1


def test_wrong_usage(command: Run) -> None:
    assert command("configs", "alter", "topic", "t", "no-equals-sign").status == 2
    assert command("configs", "describe", "planet").status == 2
    for arguments, said in (
        (("alter", "broker", "1"), "nothing to change"),
        (("alter", "broker", "="), "'=' is not of the form NAME=VALUE"),
        (("alter", "broker", "=5"), "'=5' is not of the form NAME=VALUE"),
        (("describe", "broker", "log.retention.ms=1"), "not a node's number"),
        (("describe", "topic"), "which topic"),
        (("alter", "broker", "log.retention.hour=1"), "did you mean log.retention.hours"),
        (("alter", "broker", "retention.ms=1"), "did you mean log.retention.ms"),
        (("alter", "broker", "foo=1"), "neither Lockstep nor Kafka has a setting foo\n"),
    ):
        outcome = command("configs", *arguments)
        assert outcome.status == 2 and said in outcome.err and outcome.err.count("\n") == 1


def test_a_table_has_one_line_for_each_row() -> None:
    """A broker setting may have any name and value that a client gives it."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_table(("NAME", "VALUE"), [("a\nb", "\x1b[2J"), ("c", 1)])
    assert out.getvalue().splitlines()[1:] == ["a\\nb    \\x1b[2J", "c       1"]
