"""The demo as a user runs it: processes, a broker, exit codes and the last line."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from compat_tests.targets import LockstepTarget
from lockstep.demo.bank.__main__ import main
from lockstep.demo.bank.books import make_topic, open_books
from lockstep.demo.bank.ledger import EntryKind, Ledger, LedgerEntry
from lockstep.demo.bank.operations import Deposit
from lockstep.testing import RunningBroker
from tests.lockstep.demo.bank.banks import Forged, Watched
from tests.support.cases import each_case

COMMAND = (sys.executable, "-m", "lockstep.demo.bank")
LAST_LINE = re.compile(r"transfers=(\d+) before=(\d+) after=(\d+)")


def last_line(out: str) -> tuple[int, int, int]:
    """Transfers, before, after."""
    found = LAST_LINE.fullmatch(out.splitlines()[-1])
    assert found is not None
    return int(found[1]), int(found[2]), int(found[3])


@contextmanager
def automatic(bootstrap: str, topic: str) -> Iterator[subprocess.Popen[str]]:
    words = [*COMMAND, "--automatic", "-b", bootstrap, "--topic", topic, "--accounts", "4"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """As Ctrl-C ends it; what it wrote."""
    process.send_signal(signal.SIGINT)
    return await asyncio.to_thread(process.communicate, timeout=60)


def test_for_some_seconds_on_a_broker_of_its_own() -> None:
    done = subprocess.run(
        [*COMMAND, "--seconds", "3"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    transfers, before, after = last_line(done.stdout)
    assert transfers > 0
    assert before == after == 8 * 10_000
    assert "\x1b" not in done.stdout


async def test_money_from_elsewhere_is_noticed(running: RunningBroker, topic: str) -> None:
    await make_topic(running.bootstrap_servers, topic, 2)
    ledger = Watched()
    async with open_books(running.bootstrap_servers, topic, ledger) as client:
        with automatic(running.bootstrap_servers, topic) as process:
            await ledger.has(1)
            await client.execute(Deposit(ledger, 1, 7))
            out, _ = await ended(process)
    transfers, before, after = last_line(out)
    assert (process.returncode, after - before) == (1, 7)
    assert transfers > 0


async def test_a_broker_that_is_killed_meanwhile(tmp_path: Path) -> None:
    with LockstepTarget(directory=tmp_path) as target:
        await make_topic(target.bootstrap, "bank", 4)
        ledger = Watched()
        async with open_books(target.bootstrap, "bank", ledger):
            with automatic(target.bootstrap, "bank") as process:
                await ledger.has(3)
                target.kill9()
                await asyncio.to_thread(target.restart)
                await ledger.has(ledger.transfers + 10)
                out, err = await ended(process)
    transfers, before, after = last_line(out)
    assert process.returncode == 0, err
    assert transfers >= 13 and before == after


async def test_a_teller_that_is_killed(running: RunningBroker, topic: str) -> None:
    """Nobody knows what it was told, so nobody can say that all is right."""
    await make_topic(running.bootstrap_servers, topic, 2)
    ledger = Watched()
    async with open_books(running.bootstrap_servers, topic, ledger):
        with automatic(running.bootstrap_servers, topic) as process:
            await ledger.has(1)
            psutil.Process(process.pid).children()[0].kill()
            out, err = await asyncio.to_thread(process.communicate, timeout=60)
    transfers, before, after = last_line(out)
    assert process.returncode == 1 and transfers > 0 and before == after
    assert re.fullmatch(r"error: teller [01] failed\n", err)


def test_interactive() -> None:
    typed = b"deposit 1 5\nbalance 1\n\xff\xff\nbalance 2\n"
    done = subprocess.run(COMMAND, input=typed, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    first, second, third, fourth, last = done.stdout.decode().splitlines()
    assert [first, second] == ["done at 1/0; account 1 has 5", "account 1 has 5"]
    assert third.startswith("error: there is no command")
    assert fourth == "error: there is no account 2"
    assert last == "transfers=0 total=5"


async def test_interactive_on_books_that_are_wrong(running: RunningBroker, topic: str) -> None:
    await make_topic(running.bootstrap_servers, topic, 2)
    async with open_books(running.bootstrap_servers, topic, Ledger()) as client:
        await client.execute(Forged(LedgerEntry(EntryKind.WITHDRAWAL, 1, -5), 1))
    words = [*COMMAND, "-b", running.bootstrap_servers, "--topic", topic]
    done = await asyncio.to_thread(
        subprocess.run, words, input=b"quit\n", capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == ["error: partition 1, offset 0: account 1 is at -5"] * 2
    assert done.stdout == b"transfers=0 total=-5\n"


def test_no_broker(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--seconds", "1"], []):
        assert main([*words, "--bootstrap-server", "localhost:1"]) == 1
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("error: cannot connect to localhost:1")


@each_case("words", [["--seconds", "0"], ["--accounts", "1"], ["--processes", "0"], ["bogus"]])
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err
