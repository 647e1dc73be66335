"""A target that listens, with the player's end of each transport against it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lockstep.player.transport.factory import Transport, make_streams
from lockstep.player.transport.interface import Streams
from lockstep.target import Delivered, SqliteStore, TlsFiles, serve, serve_in_thread
from tests.player.target.streams import batch, hello
from tests.player.transport.ends import Heard
from tests.support.certificates import SelfSignedCa


class Numbers:
    """An application that notes each offset."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS numbers (at INTEGER PRIMARY KEY)")
        self.store = SqliteStore(path, self.apply)

    def apply(self, connection: sqlite3.Connection, delivered: Delivered) -> None:
        for record in delivered.records:
            connection.execute("INSERT INTO numbers VALUES (?)", (record.offset,))

    def applied(self) -> list[int]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return [row[0] for row in connection.execute("SELECT at FROM numbers ORDER BY at")]


@contextlib.asynccontextmanager
async def streams(transport: Transport, tls: TlsFiles | None = None) -> AsyncIterator[Streams]:
    made = make_streams(transport, tls)
    try:
        yield made
    finally:
        await made.close()


@pytest.mark.parametrize("transport", ["grpc", "raw"])
async def test_what_is_sent_is_stored(tmp_path: Path, transport: Transport) -> None:
    numbers = Numbers(tmp_path / "state.db")
    last = -1
    for term in (1, 2):
        async with serve(numbers.store, transport=transport) as serving, streams(transport) as players:
            heard = Heard()
            stream = players.open(serving.address, hello(1, term), heard)
            assert await heard.told("greeted") == last
            for count in range(1, 21):
                stream.write(batch(last, last + 1))
                last += 1
                await heard.told("written", count)
            stream.write(batch(last, last + 5, dummies=[last + 5]))
            last += 5
            while heard.of("acknowledged")[-1:] != [last]:
                await heard.told("acknowledged", len(heard.of("acknowledged")) + 1)
    assert numbers.applied() == [*range(20), *range(25, 45)]


async def test_a_shutdown_is_reported_to_the_player(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path / "state.db")
    async with streams("grpc") as players:
        heard = Heard()
        async with serve(numbers.store, f"unix:{tmp_path}/socket") as serving:
            players.open(serving.address, hello(1, 1), heard)
            await heard.told("greeted")
        assert "shutting down" in str(await heard.told("closed"))


async def test_in_a_thread(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path / "state.db")
    entered = serve_in_thread(numbers.store)
    serving = await asyncio.to_thread(entered.__enter__)
    async with streams("grpc") as players:
        heard = Heard()
        stream = players.open(serving.address, hello(1, 1), heard)
        await heard.told("greeted")
        stream.write(batch(-1, 0))
        await heard.until(lambda: heard.of("acknowledged") == [0])
        await asyncio.to_thread(entered.__exit__, None, None, None)
    assert numbers.applied() == [0]


async def test_an_address_that_is_taken(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path / "state.db")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError):
            async with serve(numbers.store, f"127.0.0.1:{taken.getsockname()[1]}"):
                pass


async def test_there_is_no_such_transport(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no transport 'pigeon'"):
        async with serve(Numbers(tmp_path / "state.db").store, transport="pigeon"):  # type: ignore[arg-type]
            pass


async def test_over_tls_both_sides_know_each_other(tmp_path: Path) -> None:
    own, other = SelfSignedCa(), SelfSignedCa("Foreign")
    trusted, foreign = str(own.write_pem(tmp_path / "ca.pem")), str(other.write_pem(tmp_path / "other.pem"))
    target = TlsFiles(trusted, str(own.issue("target").write_pem(tmp_path / "target.pem")))
    player = str(own.issue("player", names=()).write_pem(tmp_path / "player.pem"))
    stranger = str(other.issue("stranger", names=()).write_pem(tmp_path / "stranger.pem"))
    cases = [
        (TlsFiles(trusted, player), ""),
        (TlsFiles(trusted), "unavailable"),
        (TlsFiles(trusted, stranger), "unavailable"),
        (TlsFiles(foreign, player), "unavailable"),
        (None, "unavailable"),
    ]
    numbers = Numbers(tmp_path / "state.db")
    async with serve(numbers.store, "localhost:0", tls=target) as serving:
        for tls, reason in cases:
            async with streams("grpc", tls) as players:
                heard = Heard()
                players.open(serving.address, hello(1, 1), heard)
                if reason:
                    assert reason in str(await heard.told("closed"))
                else:
                    await heard.told("greeted")


def test_keys_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    issued, nothing = SelfSignedCa().issue(), tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    encrypted = str(issued.write_pem(tmp_path / "encrypted.pem", b"secret"))
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        TlsFiles(str(tmp_path / "missing.pem")).channel_credentials()
    with pytest.raises(ValueError, match=r"nothing\.pem: no certificate"):
        TlsFiles(str(nothing)).channel_credentials()
    with pytest.raises(ValueError, match=r"encrypted\.pem: no certificate with its private key, without a"):
        TlsFiles("", encrypted).server_credentials()
    with pytest.raises(ValueError, match="needs its certificate"):
        TlsFiles(key=encrypted).channel_credentials()
    with pytest.raises(ValueError, match="needs a certificate"):
        TlsFiles().server_credentials()
    with pytest.raises(ValueError, match="raw has no TLS"):
        make_streams("raw", TlsFiles())
