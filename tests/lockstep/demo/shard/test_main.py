"""The demo as a user runs it: a process that listens, is killed, and is audited."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.demo.shard.__main__ import main
from lockstep.demo.shard.tables import Tables
from lockstep.player.transport.grpc_streams import GrpcStreams
from tests.lockstep.postgres import Postgres
from tests.player.target.streams import batch, hello
from tests.player.transport.ends import Heard
from tests.support.cases import each_case

COMMAND = (sys.executable, "-m", "lockstep.demo.shard")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shard.db'}"
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    made = server.new_database()
    yield made.replace("+psycopg", "")
    server.drop(made)


@contextlib.contextmanager
def shard(url: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and where it listens."""
    words = [*COMMAND, "--store", url, "--listen", "localhost:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            said, _, address = line.partition(" serving players on ")
            assert said == "shard ready,", line + (process.stderr.read() if process.stderr else "")
            yield process, address.strip()
        finally:
            process.kill()


async def play(address: str, target_term: int, count: int) -> int:
    """From where it is, so many records; returns the position that is stored afterwards."""
    streams = GrpcStreams()
    heard = Heard()
    stream = streams.open(address, hello(1, target_term), heard)
    position = await heard.told("greeted")
    assert isinstance(position, int)
    for sent in range(1, count + 1):
        stream.write(batch(position, position + 1))
        position += 1
        await heard.told("written", sent)
    await heard.until(lambda: heard.of("acknowledged")[-1:] == [position])
    await streams.close()
    return position


async def test_a_shard_that_is_killed_goes_on(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for term, stop_reason in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGINT), 1):
        entered = shard(url)
        process, address = await asyncio.to_thread(entered.__enter__)
        assert await play(address, term, 10) == 10 * term - 1
        process.send_signal(stop_reason)
        status = await asyncio.to_thread(process.wait)
        assert status == (-signal.SIGKILL if stop_reason == signal.SIGKILL else 0)
        await asyncio.to_thread(entered.__exit__, None, None, None)
    assert main(["--store", url, "--audit"]) == 0
    assert capsys.readouterr().out == "records=30 keys=3 problems=0 cluster/topic/0 to 29\n"


def test_what_cannot_be_done_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = f"sqlite:///{tmp_path}/no/such/directory.db"
    assert main(["--store", nowhere]) == 1
    assert capsys.readouterr().err == f"error: {nowhere}: unable to open database file\n"
    missing = f"sqlite:///{tmp_path}/missing.db"
    assert main(["--store", missing, "--audit"]) == 1
    assert capsys.readouterr().err == f"error: there is no {missing}\n"
    assert not list(tmp_path.iterdir())
    other = f"sqlite:///{tmp_path}/other.db"
    (tmp_path / "other.db").touch()
    assert main(["--store", other, "--audit"]) == 1, "it has no tables, and is given none"
    assert "no such table" in capsys.readouterr().err
    assert (tmp_path / "other.db").stat().st_size == 0
    assert main(["--store", "postgresql://localhost:1/none"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["--store", f"sqlite:///{tmp_path}/shard.db", "--listen", "no.such.host.invalid:1"]) == 1
    assert "cannot listen" in capsys.readouterr().err


@each_case("words", [["--store", "mysql://x"], ["--store", "sqlite:///"], []])
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert "--store" in capsys.readouterr().err


@pytest.mark.parametrize("listen", ["localhost", "localhost:99999", "unix:"])
def test_what_is_no_address(listen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--store", f"sqlite:///{tmp_path}/shard.db", "--listen", listen])
    assert left.value.code == 2
    assert "--listen: " in capsys.readouterr().err


async def test_an_audit_finds_what_was_applied_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shard.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        Tables(is_postgres=False).create(connection)
    assert main(["--store", f"sqlite:///{path}", "--audit"]) == 0
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for _ in range(2):
            connection.execute("INSERT INTO shard_applied (log_id, record_offset) VALUES ('c/t/0', 7)")
    capsys.readouterr()
    assert main(["--store", f"sqlite:///{path}", "--audit"]) == 1
    said = capsys.readouterr()
    assert said.err == "error: c/t/0: 7 was applied after 7\n"
    assert said.out == "records=2 keys=0 problems=1 c/t/0 to 7\n"
