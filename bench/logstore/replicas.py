"""Replicas of one store as processes: started together, one of them leads, all of them counted.

Owns: the processes and their directories, commands to them, and one client's run against the leader with what
was written meanwhile. Does not decide what is run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.machine import device, memory, process
from bench.sessions.jobs import RoundFailed
from compat_tests.clusters import free_ports
from compat_tests.targets import ROOT
from lockstep.storage.log.options import LogOptions

STREAM_BYTES_PER_S = 87_000_000
"""A single stream of the seed's network: 85 to 90 MB/s."""
START_TIMEOUT_S = 60.0
RUN_TIMEOUT_S = 600.0
CATCH_UP_S = 10.0

Figures = dict[str, Any]


@dataclass(frozen=True)
class Store:
    """The kind of a store: the number of its replicas, and their method."""

    replicas: int = 3
    flush: bool = True
    naive: bool = False
    recycle: bool = True
    """True if old records are deleted and their segments used again."""
    kept_bytes: int = 192 << 20
    """Where that begins."""
    segment_bytes: int = LogOptions.segment_bytes


@dataclass(frozen=True)
class Load:
    """One client's open loop; one request is one atomic batch."""

    payload_bytes: int
    batch: int
    rate: float
    """Payloads a second."""
    seconds: float
    warmup_s: float
    requests: int = 0
    """End after so many; 0: after `seconds`."""


class Replicas:
    """The processes of one store. A context object: `with Replicas(store, parent) as replicas`."""

    def __init__(self, store: Store, parent: Path) -> None:
        self.store = store
        self.directory = Path(tempfile.mkdtemp(prefix="bench-logstore-", dir=parent))
        self._device = device.device_of(self.directory)
        ports = free_ports(2 * store.replicas)
        ids = range(1, store.replicas + 1)
        peer_ports = {node_id: ports[node_id - 1] for node_id in ids}
        self._client_ports = {node_id: ports[store.replicas + node_id - 1] for node_id in ids}
        self._nodes = {node_id: self._start(node_id, peer_ports) for node_id in ids}
        self._leader = 0

    def _start(self, node_id: int, peer_ports: dict[int, int]) -> subprocess.Popen[str]:
        job = {
            **asdict(self.store),
            "node_id": node_id,
            "directory": str(self.directory / str(node_id)),
            "peer_ports": peer_ports,
            "client_port": self._client_ports[node_id],
            "stream_bytes_per_s": STREAM_BYTES_PER_S,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "bench.logstore.node", json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    # -- lifecycle --------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            for node in self._nodes.values():
                self._read(node)
            self._await_leader()
            self.settle()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for node in self._nodes.values():
            with contextlib.suppress(OSError, ValueError):
                assert node.stdin is not None
                node.stdin.close()
        for node in self._nodes.values():
            try:
                node.wait(10)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
            assert node.stdout is not None
            node.stdout.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        memory.keep_again()
        os.sync()

    def _read(self, node: subprocess.Popen[str]) -> Figures:
        assert node.stdout is not None
        line = node.stdout.readline()
        if not line:
            raise RoundFailed(f"a replica ended with {node.wait()}")
        answer: Figures = json.loads(line)
        return answer

    def _ask(self, node_id: int, command: str) -> Figures:
        node = self._nodes[node_id]
        assert node.stdin is not None
        node.stdin.write(command + "\n")
        node.stdin.flush()
        return self._read(node)

    def _await_leader(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            for node_id in self._nodes:
                if self._ask(node_id, "lead")["leader"]:
                    self._leader = node_id
                    return
            time.sleep(0.05)
        raise RoundFailed(f"no leader of {self.store.replicas} replicas after {START_TIMEOUT_S:.0f} s")

    # -- measuring --------------------------------------------------------------------------------------

    def run(self, load: Load) -> Figures:
        """One client's run, with what the replicas and the disk did meanwhile. RoundFailed."""
        if not self._ask(self._leader, "lead")["leader"]:
            self._await_leader()
        os.sync()
        before = {node_id: self._ask(node_id, "stats") for node_id in self._nodes}
        cpu = {node_id: process.cpu_seconds(node.pid) for node_id, node in self._nodes.items()}
        counters = device.read_counters(self._device)
        result = self._client(load)
        seconds = result["wall_s"]
        spent = {
            node_id: process.cpu_seconds(node.pid) - cpu[node_id] for node_id, node in self._nodes.items()
        }
        after = self._caught_up()
        os.sync()
        on_device = device.read_counters(self._device).since(counters)
        followers = [share for node_id, share in spent.items() if node_id != self._leader]
        payload = result["total_payload_bytes"]
        return {
            **asdict(load),
            **result,
            "cpu_share": {
                "leader": round(spent[self._leader] / seconds, 3),
                "followers": [round(share / seconds, 3) for share in followers],
                "client": round(result["client_cpu_s"] / seconds, 3),
            },
            "device": on_device.as_dict(),
            "device_bytes_per_payload_byte_and_replica": on_device.write_bytes / payload / len(self._nodes),
            "replicas": [
                written_between(before[node_id], after[node_id], payload) for node_id in self._nodes
            ],
            "allocated_bytes": sum(each["allocated_bytes"] for each in after.values()),
            "log_bytes": sum(each["log_bytes"] for each in after.values()),
        }

    def _caught_up(self) -> dict[int, Figures]:
        """Every replica's counts, once all have committed the same; as they are where that takes long."""
        deadline = time.monotonic() + CATCH_UP_S
        while True:
            found = {node_id: self._ask(node_id, "stats") for node_id in self._nodes}
            if len({each["commit_index"] for each in found.values()}) == 1 or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    def settle(self) -> None:
        """Wait until the segments that a log keeps ready are filled: that is not the first run's work."""
        filled, deadline = -1, time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            found = [self._ask(node_id, "stats")["written"]["zero fill"] for node_id in self._nodes]
            if sum(found) == filled and min(found):
                return
            filled = sum(found)
            time.sleep(0.5)

    def _client(self, load: Load) -> Figures:
        job = {
            "job": "open_loop",
            **asdict(load),
            "port": self._client_ports[self._leader],
            "stream_bytes_per_s": STREAM_BYTES_PER_S,
        }
        done = subprocess.run(
            [sys.executable, "-m", "bench.load", json.dumps(job)],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            cwd=ROOT,
            check=False,
        )
        try:
            result: Figures = json.loads(done.stdout)
        except ValueError:
            result = {"error": done.stderr[-500:]}
        if "error" in result:
            raise RoundFailed(f"{self.store}, {load}: {result['error']}")
        return result


def written_between(before: Figures, after: Figures, payload_bytes: int) -> Figures:
    """The writes of one replica for these payloads: bytes per payload byte by purpose, flushes per commit."""
    commits = after["commit_index"] - before["commit_index"]
    flushes = after["flushes"] - before["flushes"]
    written = {name: count - before["written"][name] for name, count in after["written"].items()}
    return {
        "commits": commits,
        "flushes": flushes,
        "flushes_per_commit": round(flushes / commits, 3) if commits else 0.0,
        "bytes_per_payload_byte": {name: round(count / payload_bytes, 4) for name, count in written.items()},
    }
