"""One replica as a process: `python -m bench.logstore.node JSON`, commands on stdin, responses on stdout.

Owns: a `LogGroup` with one partition, its peers over `lockstep.storage.peers`, one client's stream, the caps
on all streams, and what is counted. Answers to the client are cumulative: how many of its
requests are committed and applied. Does not decide what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, cast

import uvloop

from bench.logstore.naive import SECTION, SecondLog
from compat_tests.probe import HOST
from lockstep.protocol.records.batch import read_header, verify
from lockstep.storage.group_options import node_of
from lockstep.storage.log.file_system import RealFileSystem
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.peers.network import PeerNetwork
from lockstep.storage.raft.messages import Message
from lockstep.storage.types import NotLeader

GROUP = 1
TOPIC = b"\x0b" * 16
CLIENT_WINDOW_BYTES = 16 << 20
"""Taken from the client and not committed; beyond that its stream is not read."""
HOUSEKEEPING_S = 0.25
SO_MAX_PACING_RATE = getattr(socket, "SO_MAX_PACING_RATE", 47)
COUNT = struct.Struct(">Q")
LENGTH = struct.Struct(">I")


class CountingFileSystem(RealFileSystem):
    """Counts flushes of the log's files."""

    def __init__(self) -> None:
        self.flushes = 0

    def fdatasync(self, fd: int, /) -> None:  # type: ignore[override]
        self.flushes += 1
        os.fdatasync(fd)


def pace_sockets(bytes_per_s: int) -> None:
    """Cap what this process sends on each of its TCP connections."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as sock:
                if sock.type == socket.SOCK_STREAM and sock.family in (socket.AF_INET, socket.AF_INET6):
                    sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, bytes_per_s)


class Intake(asyncio.Protocol):
    """The stream of one client: length and batch, again and again."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._buffer = bytearray()
        self._received_bytes = self._taken = self._taken_bytes = 0
        self._committed = self._committed_bytes = self._told = 0
        self._paused = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by name
        self._node.intake = self
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        pos, end = 0, len(buffer)
        batches = []
        while end - pos >= 4:
            (size,) = LENGTH.unpack_from(buffer, pos)
            if end - pos < 4 + size:
                break
            batches.append(buffer[pos + 4 : pos + 4 + size])
            pos += 4 + size
        del buffer[:pos]
        self._received_bytes += pos
        if self._received_bytes - self._committed_bytes > CLIENT_WINDOW_BYTES and not self._paused:
            self._paused = True
            assert self.transport is not None
            self.transport.pause_reading()
        if batches:
            self._append(batches)

    def _lost(self) -> None:
        """The leadership is gone: the client's run ends."""
        assert self.transport is not None
        self.transport.abort()

    def _append(self, batches: list[bytearray]) -> None:
        group, partition = self._node.group, self._node.partition
        for batch in batches:
            header = read_header(batch)
            verify(batch, 0, header)
            try:
                group.append(partition, batch, header)
            except NotLeader:
                self._lost()
                return
            self._taken_bytes += LENGTH.size + len(batch)
            self._node.taken_bytes += len(batch)
        self._taken += len(batches)
        taken, taken_bytes = self._taken, self._taken_bytes
        group.when_committed(lambda error: self._commit(taken, taken_bytes, error))

    def _commit(self, taken: int, taken_bytes: int, error: BaseException | None) -> None:
        if error is not None:
            self._lost()
            return
        self._committed, self._committed_bytes = taken, taken_bytes

    def applied(self) -> None:
        """All that is committed is applied: notify the client."""
        transport = self.transport
        if transport is None or transport.is_closing() or self._told == self._committed:
            return
        self._told = self._committed
        transport.write(COUNT.pack(self._told))
        if self._paused and self._received_bytes - self._committed_bytes < CLIENT_WINDOW_BYTES // 2:
            self._paused = False
            transport.resume_reading()


class Node:
    """The replica, and the owner of its peers' connections."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.node_id: int = job["node_id"]
        self.ports = {int(key): value for key, value in job["peer_ports"].items()}
        self.fs = CountingFileSystem()
        self.options = LogOptions(flush=job["flush"], segment_bytes=job["segment_bytes"])
        self.intake: Intake | None = None
        self.second: SecondLog | None = None
        self.taken_bytes = 0
        self.group: LogGroup
        self._server: asyncio.Server
        self._places: deque[tuple[int, int]] = deque()

    # -- PeerListener --------------------------------------------------------------------------------------

    def hello(self) -> bytes:
        return b""

    def on_handshake(self, node_id: int, hello: bytes) -> str | None:
        return None

    def on_process_stopped(self, node_id: int) -> None:
        """Like `PeerListener`."""

    def on_rejection(self, node_id: int, text: str) -> None:
        print(f"node {node_id} rejected: {text}", file=sys.stderr)

    def on_message(self, group_id: int, message: Message) -> None:
        self.group.receive(message)

    def on_notification(self, node_id: int, kind: int, body: bytes) -> None:
        pass

    async def _refuse(self) -> bytes:
        raise PeerError("no request is served here")

    def on_request(self, node_id: int, kind: int, body: bytes) -> Awaitable[bytes]:
        return self._refuse()

    def on_link(self, node_id: int, up: bool) -> None:
        if up and self.job["stream_bytes_per_s"]:
            pace_sockets(self.job["stream_bytes_per_s"])

    # -- lifecycle --------------------------------------------------------------------------------------

    def _send(self, to: int, message: Message) -> None:
        self.network.send(node_of(to), GROUP, message)

    async def start(self) -> None:
        """Open the group, listen to peers and to a client."""
        job, directory = self.job, Path(self.job["directory"])
        loop = asyncio.get_running_loop()
        self.network = PeerNetwork(self.node_id, self, loop)
        if job["naive"]:
            self.second = SecondLog(directory / "second", self.options, self.fs)
        self.group = await LogGroup.open(
            directory / "raft",
            GroupOptions(GROUP, self.node_id, self.options, voters=tuple(self.ports)),
            clock_ms=lambda: time.time_ns() // 1_000_000,
            on_fatal=lambda error: os._exit(70),
            commit_machines={TOPIC: (SECTION, self.second)} if self.second is not None else None,
            send=self._send,
            fs=self.fs,
        )
        self.group.after_commit = self._after_commit
        await self.network.listen([socket.create_server((HOST, self.ports[self.node_id]))])
        for node_id, port in self.ports.items():
            if node_id != self.node_id:
                self.network.add_node(node_id, HOST, port)
        self._server = await loop.create_server(lambda: Intake(self), HOST, job["client_port"])

    def _after_commit(self) -> None:
        if self.second is not None:
            self.second.write()
        if self.intake is not None:
            self.intake.applied()

    async def lead(self) -> dict[str, Any]:
        """True if this node leads; then its partition is open when this returns."""
        if not self.group.is_leader:
            return {"leader": False}
        mine = [each for number, each in self.group.partitions.items() if number]
        (self.partition,) = mine or await self.group.open_partitions([(TOPIC, 0)])
        return {"leader": True}

    async def housekeep(self) -> None:
        """`tidy` again and again, on every replica."""
        while self.job["recycle"]:
            await asyncio.sleep(HOUSEKEEPING_S)
            await self.tidy()

    async def tidy(self) -> None:
        """Delete what is older than `kept_bytes`, so that segments are used again as in a store that has run
        for long."""
        if self.group.is_leader and self.taken_bytes:
            places = self._places
            places.append((self.taken_bytes, self.partition.high_watermark))
            start = 0
            while places and places[-1][0] - places[0][0] > self.job["kept_bytes"]:
                start = places.popleft()[1]
            if start:
                await self.group.advance_log_starts({self.partition.local_id: start})
        self.group.free_deleted_segments()

    def stats(self) -> dict[str, Any]:
        """Counts since the start."""
        logs = [self.group.log, *([self.second.log] if self.second is not None else [])]
        written: dict[str, int] = {}
        for log in logs:
            for name, count in log.written_bytes().items():
                written[name] = written.get(name, 0) + count
        return {
            "written": written,
            "flushes": self.fs.flushes,
            "commit_index": self.group.commit_index,
            "allocated_bytes": sum(
                path.stat().st_blocks * 512
                for path in Path(self.job["directory"]).rglob("*")
                if path.is_file()
            ),
            "log_bytes": written["log"],
        }

    async def close(self) -> None:
        self._server.close()
        await self.network.close()
        await self.group.close()
        if self.second is not None:
            self.second.close()


async def _serve(job: dict[str, Any]) -> None:
    node = Node(job)
    await node.start()
    tidying = asyncio.ensure_future(node.housekeep())
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print(json.dumps({"ready": True}), flush=True)
    while line := await reader.readline():
        match line.decode().strip():
            case "lead":
                response = await node.lead()
            case "stats":
                response = node.stats()
            case _:
                break
        print(json.dumps(response), flush=True)
    tidying.cancel()
    await node.close()


def main() -> int:
    """Run the replica that argv[1] describes until stdin ends or has the line "stop"."""
    uvloop.run(_serve(json.loads(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
