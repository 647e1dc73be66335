"""Nodes on loopback that write down what their network tells them; and peers made by hand, byte by byte."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from lockstep.protocol.fields import Struct
from lockstep.protocol.peer_messages import PeerHandshake
from lockstep.storage.peers.envelope import pack, unpack
from lockstep.storage.peers.network import PeerError, PeerLimits, PeerNetwork
from lockstep.storage.peers.peer_tls import PeerTls
from lockstep.storage.raft.messages import Message


def bound() -> socket.socket:
    """A listening address of one's own; a restarted node takes the same one."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", 0))
    return made


def bound_again(port: int) -> socket.socket:
    """The address of a node that was there before."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


async def until(what: Callable[[], bool]) -> None:
    """Wait for it, at most five seconds."""
    for _ in range(1000):
        if what():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not within five seconds")


@dataclass
class Node:
    """A PeerListener with a memory."""

    node_id: int
    refuses: dict[int, str] = field(default_factory=dict)
    said: bytes = b"hello"
    greeted: list[tuple[int, bytes]] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    messages: list[tuple[int, Message]] = field(default_factory=list)
    told: list[tuple[int, int, bytes]] = field(default_factory=list)
    links: list[tuple[int, bool]] = field(default_factory=list)
    answer: Callable[[int, int, bytes], Awaitable[bytes]] | None = None
    on_arrival: Callable[[int, Message], None] | None = None
    network: PeerNetwork = field(init=False)
    port: int = 0
    tls: PeerTls | None = None

    def hello(self) -> bytes:
        return self.said

    def on_handshake(self, node_id: int, hello: bytes) -> str | None:
        self.greeted.append((node_id, hello))
        return self.refuses.get(node_id)

    def on_process_stopped(self, node_id: int) -> None:
        self.absent.append(node_id)

    def on_rejection(self, node_id: int, text: str) -> None:
        self.refused.append((node_id, text))

    def on_message(self, group_id: int, message: Message) -> None:
        self.messages.append((group_id, message))
        if self.on_arrival is not None:
            self.on_arrival(group_id, message)

    def on_notification(self, node_id: int, kind: int, body: bytes) -> None:
        self.told.append((node_id, kind, body))

    async def on_request(self, node_id: int, kind: int, body: bytes) -> bytes:
        if self.answer is None:
            raise PeerError("nobody answers here")
        return await self.answer(node_id, kind, body)

    def on_link(self, node_id: int, up: bool) -> None:
        self.links.append((node_id, up))

    async def start(self, limits: PeerLimits | None = None) -> None:
        made = bound_again(self.port) if self.port else bound()
        self.port = made.getsockname()[1]
        self.network = PeerNetwork(
            self.node_id, self, asyncio.get_running_loop(), limits=limits, tls=self.tls
        )
        await self.network.listen([made])

    def add_node(self, *others: Node) -> None:
        for other in others:
            self.network.add_node(other.node_id, "127.0.0.1", other.port)


@asynccontextmanager
async def nodes(
    count: int, limits: PeerLimits | None = None, tls: Callable[[int], PeerTls | None] = lambda node_id: None
) -> AsyncIterator[list[Node]]:
    """Nodes 1 to `count` that know each other and are linked."""
    made = [Node(each, tls=tls(each)) for each in range(1, count + 1)]
    for each in made:
        await each.start(limits)
    for each in made:
        each.add_node(*made)
    try:
        await until(lambda: all(len(each.links) == count - 1 for each in made))
        yield made
    finally:
        for each in made:
            await each.network.close()


class Stranger:
    """A connection to a node, made by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def of(cls, node: Node) -> Stranger:
        return cls(*await asyncio.open_connection("127.0.0.1", node.port))

    def say(self, data: bytes | Struct) -> None:
        self.writer.write(data if isinstance(data, bytes) else b"".join(pack(data)[0]))

    async def greet(self, node: Node, node_id: int = 9, bulk: bool = False) -> Struct:
        self.say(PeerHandshake(node_id=node_id, to_node_id=node.node_id, bulk=bulk, hello=b"by hand"))
        return await self.hear()

    async def hear(self) -> Struct:
        async with asyncio.timeout(5):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return unpack(memoryview(await self.reader.readexactly(size)))

    async def ended(self) -> bool:
        """Has the node closed it, saying nothing more?"""
        async with asyncio.timeout(5):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    async def close(self) -> None:
        self.writer.close()
