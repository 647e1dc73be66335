"""A PostgreSQL of the tests' own, in a directory that goes with it; the machine's own cluster is left alone.

    with postgres() as server:
        engine = sqlalchemy.create_engine(server.new_database())

Owns: finding the programs, a cluster on a Unix socket, its start and its stop by process id. The server
refuses root, so root runs it as `nobody`. It never flushes: processes are killed here, never the machine.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg

_READY_TIMEOUT_S: Final = 60.0
_SETTINGS: Final = {
    "listen_addresses": "",
    "port": "5432",  # of the socket alone
    "fsync": "off",
    "max_connections": "50",
    "deadlock_timeout": "50ms",
}


class PostgresMissing(Exception):
    """Its programs are not installed; says what to do."""


def programs() -> Path:
    """The directory of `initdb` and `postgres`. Raises PostgresMissing."""
    found = shutil.which("initdb")
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: path.parts[-3].zfill(4)
    )
    on_path = [Path(found).resolve()] if found else []
    for initdb in [*on_path, *debian[::-1]]:
        if (initdb.parent / "postgres").exists():
            return initdb.parent
    raise PostgresMissing("PostgreSQL's initdb not found: install the package postgresql (make system-deps)")


class Postgres:
    """One server; `stop` and `start` keep its data."""

    def __init__(self, programs: Path, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self._bin = programs
        self._directory = directory
        self._settings = {**_SETTINGS, **(settings or {}), "unix_socket_directories": str(directory)}
        self._data = directory / "data"
        self._numbers = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(directory, nobody.pw_uid, nobody.pw_gid)
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def initialize(self) -> None:
        options = ["--username=lockstep", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run(
            [str(self._bin / "initdb"), "-D", str(self._data), *options],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._directory,
            **self._as,
        )

    def start(self) -> None:
        """Until it answers. One that ends at once is tried again: what it needs may be held for a moment."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        self._launch()
        while not self._answers():
            if time.monotonic() > deadline:
                raise RuntimeError(self.log())
            time.sleep(0.02)
            if not self.running:
                time.sleep(0.5)
                self._launch()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        return (self._directory / "log").read_text(errors="replace")

    def _launch(self) -> None:
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._bin / "postgres"),
                    "-D",
                    str(self._data),
                    *(f"--{name}={value}" for name, value in self._settings.items()),
                ],
                stdout=log,
                stderr=log,
                cwd=self._directory,
                **self._as,
            )

    def stop(self) -> None:
        """At once, as if it had crashed: what is open is lost, connections break."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    def new_database(self) -> str:
        """The URL of an empty one, for SQLAlchemy. A server that ended by itself says why and runs again."""
        if not self.running:
            warnings.warn(f"PostgreSQL had ended:\n{self.log()[-2000:]}", stacklevel=2)
            self.start()
        name = f"test_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}")
        port = self._settings["port"]
        return f"postgresql+psycopg://lockstep@/{name}?host={self._directory}&port={port}"

    def drop(self, database: str) -> None:
        """By its URL, whoever uses it still."""
        self.run(f"DROP DATABASE {database.split('/')[3].split('?')[0]} WITH (FORCE)")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """As the superuser, outside the tests' databases."""
        with self._connect() as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(
            host=str(self._directory),
            port=self._settings["port"],
            user="lockstep",
            dbname="postgres",
            autocommit=True,
        )

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True


@contextlib.contextmanager
def postgres(settings: Mapping[str, str] | None = None) -> Iterator[Postgres]:
    """A server until the block ends, with settings of one's own. Raises PostgresMissing."""
    found = programs()
    # not pytest's directory, which only its owner can enter; and a socket's path must be short
    directory = Path(tempfile.mkdtemp(prefix="lockstep-pg-"))
    server = Postgres(found, directory, settings)
    try:
        server.initialize()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
