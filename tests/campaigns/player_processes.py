"""What the player's campaign starts, kills and stops: targets in SQLite and PostgreSQL, two players.

Owns: the processes, by their ids; the players' memory; what a target's database has in the end. Whoever ends
by itself is started again, as under a supervisor: a player does so with status 1 where it cannot begin
without the brokers; all else is noted in `strange`.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
import psycopg

from compat_tests.clusters import free_ports
from compat_tests.probe import HOST
from compat_tests.targets import ROOT
from tests.campaigns.player_judge import Contents

SHARD: Final = "lockstep.demo.shard"
CANNOT: Final = 1
"""The status of a process that says why it does not go on."""
END_S: Final = 30.0
ASK_S: Final = 2.0
SAMPLE_S: Final = 0.1


class Options(NamedTuple):
    """What all of a campaign have in common."""

    transport: str
    directory: Path


class Process:
    """One of them; `restart` and `go_on` are what heals it."""

    def __init__(self, name: str, words: Sequence[str], directory: Path, may_end: bool = False) -> None:
        """`may_end`: with status 1, by itself."""
        self.name = name
        self.log = directory / f"{name}.log"
        self.is_stopped = False
        self.ended: list[str] = []
        """When it ended by itself as it may: the last line that it said."""
        self.strange: list[str] = []
        self._words = [sys.executable, "-m", *words]
        self._may_end = may_end
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )
        self.is_stopped = False

    @property
    def pid(self) -> int:
        """0 where it is down."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_up(self) -> bool:
        """It runs, and is not stopped."""
        return self._process is not None and self._process.poll() is None and not self.is_stopped

    def is_ready(self) -> bool:
        """It does what it is for, and can be told to end."""
        return self.is_up

    def look(self) -> None:
        """Start it again where it has ended by itself."""
        if self._process is None or (status := self._process.poll()) is None:
            return
        lines = self.log.read_text(errors="replace").splitlines() or [""]
        if self._may_end and status == CANNOT:
            self.ended.append(lines[-1])
        else:
            self.strange.append(f"{self.name} ended by itself with {status}:\n" + "\n".join(lines[-20:]))
        self.start()

    def kill9(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Where it is down."""
        if self._process is None:
            self.start()

    def stop(self) -> None:
        """As if its machine had frozen."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            self.is_stopped = True

    def go_on(self) -> None:
        """Where it was stopped."""
        if self._process is not None and self.is_stopped:
            self._process.send_signal(signal.SIGCONT)
        self.is_stopped = False

    def end(self) -> None:
        """With SIGTERM. What it should not have done is in `strange`."""
        if self._process is None:
            return
        self.go_on()
        self._process.terminate()
        try:
            status = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            status = None
        if status != 0:
            tail = self.log.read_text(errors="replace")[-1000:]
            self.strange.append(f"{self.name}: SIGTERM, and then status {status}:\n{tail}")
        self.kill9()

    def rss_bytes(self) -> int:
        """Resident memory; 0 where it is down."""
        process = self._process
        with contextlib.suppress(psutil.Error):
            return 0 if process is None else int(psutil.Process(process.pid).memory_info().rss)
        return 0


class Target(Process):
    """A process of the demo shard on a database that outlives it."""

    def __init__(self, name: str, program: str, store: str, address: str, options: Options) -> None:
        """`store`: as the shard takes it."""
        self.store = store
        self.address = address
        words = ["--store", store, "--listen", address, "--transport", options.transport]
        super().__init__(name, [program, *words], options.directory)

    def is_ready(self) -> bool:
        host, _, port = self.address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), ASK_S).close()
        except OSError:
            return False
        return self.is_up

    def count(self) -> int:
        """Records applied; 0 where there is no table yet."""
        try:
            ((count,),) = self._rows("SELECT count(*) FROM shard_applied")
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
            return 0
        return int(count)

    def player_term(self) -> int:
        """The highest that it was greeted in."""
        ((term,),) = self._rows("SELECT max(player_term) FROM lockstep_player_marks")
        return int(term or 0)

    def contents(self) -> Contents:
        found = Contents()
        rows = self._rows("SELECT log_id, record_offset, record_key FROM shard_applied ORDER BY number")
        for log_id, offset, key in rows:
            found.logs.add(log_id)
            partition = int(log_id.rpartition("/")[2])
            found.applied[partition].append((offset, key))
            found.sequence.append((partition, offset))
        found.values = dict(self._rows("SELECT record_key, record_value FROM shard_values"))
        return found

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        if not self.store.startswith("sqlite:///"):
            with psycopg.connect(self.store) as postgres:
                return list(postgres.execute(query.encode()))
        path = self.store.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, timeout=END_S)) as sqlite:
            return list(sqlite.execute(query))


class Player(Process):
    """`lockstep player run`, of one name."""

    def __init__(self, name: str, address: str, config: Mapping[str, Any], directory: Path) -> None:
        self._status = f"http://{address}/status"
        file = directory / f"{name}.toml"
        file.write_text(toml({"player": name, "listen": address, **config}))
        super().__init__(name, ["lockstep", "player", "run", str(file)], directory, may_end=True)

    def is_ready(self) -> bool:
        return bool(self._logs())

    def plays(self) -> set[int]:
        """Which partitions; none where it does not answer."""
        return {each["partition"] for each in self._logs() if each["is_playing"]}

    def _logs(self) -> list[dict[str, Any]]:
        try:
            with urllib.request.urlopen(self._status, timeout=ASK_S) as answer:
                found: list[dict[str, Any]] = json.load(answer)["logs"]
        except (OSError, ValueError):
            return []
        return found


class Memory(threading.Thread):
    """The players' highest resident memory, by what was going on."""

    def __init__(self, players: Sequence[Player]) -> None:
        super().__init__(daemon=True)
        self.highest = {"before": 0, "while_one_is_stopped": 0, "after": 0}
        self.phase = "before"
        self._players = players
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.wait(SAMPLE_S):
            seen = max([each.rss_bytes() for each in self._players], default=0)
            self.highest[self.phase] = max(self.highest[self.phase], seen)

    def end(self) -> None:
        self._ending.set()
        if self.is_alive():
            self.join()


def toml(table: Mapping[str, Any]) -> str:
    """Of texts, numbers, and tables of such."""
    return "".join(f"{key} = {_inline(value)}\n" for key, value in table.items())


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_inline(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def players_of(bootstrap: str, topic: str, targets: Sequence[Target], options: Options) -> list[Player]:
    """Two, of which one stands by. Their timers are short, and what they hold of a target is little."""
    config = {"bootstrap": bootstrap, **_config(topic, targets, options), "claims": CLAIMS}
    addresses = [f"{HOST}:{port}" for port in free_ports(2)]
    return [
        Player(f"player-{number}", address, config, options.directory)
        for number, address in enumerate(addresses)
    ]


def targets_of(stores: Mapping[str, str], options: Options, program: str = SHARD) -> list[Target]:
    """A target for each of `stores`. `program`: what it runs."""
    addresses = [f"{HOST}:{port}" for port in free_ports(len(stores))]
    return [
        Target(name, program, store, address, options)
        for (name, store), address in zip(stores.items(), addresses, strict=True)
    ]


def group_config(topic: str, targets: Sequence[Target], options: Options) -> Path:
    """The configuration of a player inside each broker, which plays whole log groups."""
    config = {"player": "beside", "order": "log group", **_config(topic, targets, options)}
    file = options.directory / "beside.toml"
    file.write_text(toml(config))
    return file


def _config(topic: str, targets: Sequence[Target], options: Options) -> dict[str, Any]:
    return {
        "topic": topic,
        "transport": options.transport,
        "route": {"by": "header"},
        "targets": {each.name: {"address": each.address} for each in targets},
        "settings": {**BOUNDS, **TIMERS},
    }


_MIB: Final = 1 << 20
BOUNDS: Final = {
    "batch": {"entries": 200, "size_bytes": _MIB // 4},
    "window": {"entries": 500, "size_bytes": _MIB},
    "normal": {"entries": 1000, "size_bytes": 2 * _MIB},
    "catchup": {"entries": 1000, "size_bytes": _MIB},
}
"""So small that they are reached."""
TIMERS: Final = {"dummy_every": 100, "heartbeat_ms": 200, "longest_backoff_ms": 1000}
CLAIMS: Final = {"renew_ms": 500, "lease_ms": 2000}
LEASE_S: Final = CLAIMS["lease_ms"] / 1000


def bound_bytes(targets: int, partitions: int) -> int:
    """What a player may hold for its targets at most, by its settings."""
    of_one = sum(BOUNDS[name]["size_bytes"] for name in ("window", "normal", "catchup"))
    return targets * partitions * of_one
