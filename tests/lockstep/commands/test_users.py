"""`lockstep users`."""

from __future__ import annotations

import json

import pytest

from lockstep.commands import users
from lockstep.failures import CommandFailed
from tests.lockstep.conftest import Run


def test_a_users_life(command: Run) -> None:
    assert command("users", "list") == (0, "no users\n", "")
    changed = command("users", "set", "alice", stdin=b"secret\n")
    assert changed == (0, "user alice: set for SCRAM-SHA-512\n", "")
    weaker = "--mechanism", "SCRAM-SHA-256", "--iterations", "8192"
    command("users", "set", "alice", *weaker, stdin=b"secret")
    assert [line.split() for line in command("users", "list").out.splitlines()[1:]] == [
        ["alice", "SCRAM-SHA-256", "8192"],
        ["alice", "SCRAM-SHA-512", "4096"],
    ]
    assert json.loads(command("users", "list", "--json").out) == {
        "user": "alice",
        "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096},
    }
    assert command("users", "delete", "alice", "--mechanism", "SCRAM-SHA-256").status == 0
    assert "SHA-256" not in command("users", "list").out
    assert command("users", "delete", "alice") == (0, "user alice: deleted\n", "")
    gone = command("users", "delete", "alice")
    assert gone.status == 1 and "there is no user alice" in gone.err


def test_passwords_and_iterations_that_are_none(command: Run) -> None:
    assert command("users", "set", "bob", stdin=b"\n").status == 2
    few = command("users", "set", "bob", "--iterations", "10", stdin=b"secret")
    assert few.status == 2 and "from 4096 to 16384" in few.err
    assert command("users", "list").out == "no users\n"


def test_a_user_that_the_broker_rejects(command: Run) -> None:
    refused = command("users", "set", "x" * 300, stdin=b"secret")
    assert refused.status == 1 and "Username has 300 characters" in refused.err


def test_a_password_at_a_terminal_is_prompted_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    answers = iter(["secret", "other", "secret", "secret"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    with pytest.raises(CommandFailed, match="passwords differ"):
        users._read_password()
    assert users._read_password() == "secret"
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(CommandFailed, match="which is closed"):
        users._read_password()
