"""A broker and a way to run the command against it, in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import uuid4

import pytest

import lockstep.testing
from lockstep.cli import main


class Outcome(NamedTuple):
    """How one run of the command ended."""

    status: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def running() -> Iterator[lockstep.testing.RunningBroker]:
    with lockstep.testing.broker_in_thread(log_flush="os") as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    """A name nobody has used."""
    return f"t-{uuid4().hex[:12]}"


@pytest.fixture
def command(
    running: lockstep.testing.RunningBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Run:
    """`command("topics", "list", stdin=b"...")`: the command as a user runs it, against `running`."""
    monkeypatch.setenv("LOCKSTEP_BOOTSTRAP", running.bootstrap_servers)

    def run(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            status = main(arguments)
        except SystemExit as left:
            status = int(left.code or 0)
        out, err = capsysbinary.readouterr()
        return Outcome(status, out.decode(), err.decode())

    return run
