"""One outgoing connection to a peer: dialed again for as long as it is wanted, greeted, then only written to.

Invariants: what is sent goes to the kernel before `send` returns, unless something older waits; the loop
writes what the kernel did not take, and a link with nothing to send asks nothing of the loop. What waits is
bounded, and is lost with the connection. `send` raises nothing and calls nobody back: that a link is
lost is told in a later turn. Does not know what it carries.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import deque
from itertools import islice
from typing import Protocol

from protocol.frame_reader import FrameReader
from protocol.peer_messages import HandshakeAccepted, HandshakeRejected
from protocol.primitives import Buffer, MalformedMessage
from storage.peers.envelope import Frame, unpack
from storage.peers.limits import PeerLimits, tune

log_of_links = logging.getLogger(__name__)

BUFFERS_PER_WRITE = 1024
"""What Linux takes in one call (IOV_MAX)."""


NOT_FOUND = "its address is not found"
NO_ANSWER = "no answer from there"
NOBODY_THERE = "connection refused: nothing listens there"
SILENT = "what listens there is silent: is it the replication listener of a node?"
NO_LISTENER = "what listens there is not a replication listener: a port for clients?"
NO_WAY = "this machine has no way to an address of that kind"
_NO_WAY_ERRORS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH})
"""Of an IPv6 address on a machine without IPv6."""


class LinkOwner(Protocol):
    """Who is told, always in a turn of the loop's own."""

    def greeting(self, bulk: bool) -> Frame:
        """What is said first."""

    def on_link(self, link: Link, up: bool) -> None:
        """The other side has welcomed us, or the connection is lost."""

    def on_absent(self) -> None:
        """Nobody listens at the address: the system of a host that is there said so."""

    def on_refused(self, reason: str) -> None:
        """The other side wants nothing of us; it is asked again later."""


class Refused(Exception):
    """The other side's own words."""


class Link:
    """See the module."""

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        bulk: bool,
        owner: LinkOwner,
        loop: asyncio.AbstractEventLoop,
        limits: PeerLimits,
    ) -> None:
        self._address = address
        self._name = name
        self._bulk = bulk
        self._owner = owner
        self._loop = loop
        self._limits = limits
        self._bound = limits.bulk_bytes if bulk else limits.control_bytes
        self._socket: socket.socket | None = None
        self._waiting: deque[Buffer] = deque()
        self.waiting_bytes = 0
        """Not taken by the kernel yet."""
        self._told: dict[int, Frame] = {}
        """Newest words that have not begun to travel, by topic."""
        self._lost: asyncio.Future[None] | None = None
        self._hurry = asyncio.Event()
        self._refused = False
        self._ending = ""
        """What to call an end of the dial that is under way."""
        self.problem = ""
        """Why the last dial failed; "" where it did not, or none has ended yet."""
        self.absent = False
        """Whether the last dial told `on_absent`, and none has begun since."""
        self._task = loop.create_task(self._run())

    # --- sending ------------------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """Welcomed, and not known to be lost."""
        return self._socket is not None

    def send(self, frame: Frame) -> bool:
        """Send it at once, or after what waits; False where there is no link or too much waits already."""
        connected = self._socket
        if connected is None:
            return False
        buffers, size = frame
        if self._waiting:
            if self.waiting_bytes + size > self._bound:
                return False
            self._waiting.extend(buffers)
            self.waiting_bytes += size
            return True
        try:
            if len(buffers) == 1:
                sent = connected.send(buffers[0])
            else:
                sent = connected.sendmsg(buffers[:BUFFERS_PER_WRITE])
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._drop(str(error))
            return False
        if sent < size:
            self._waiting.extend(buffers)
            self.waiting_bytes = size
            self._taken(sent)
            self._loop.add_writer(connected, self._write)
        return True

    def tell(self, topic: int, frame: Frame) -> None:
        """Send it when there is room; an older one of this topic that has not begun to travel is dropped."""
        if self._waiting or self._socket is None:
            self._told[topic] = frame
        else:
            self.send(frame)

    def _write(self) -> None:
        """The kernel takes more."""
        connected = self._socket
        if connected is None:
            return
        try:
            sent = connected.sendmsg(list(islice(self._waiting, BUFFERS_PER_WRITE)))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._drop(str(error))
            return
        self._taken(sent)
        if not self._waiting:
            self._loop.remove_writer(connected)
            self._tell_waiting()

    def _taken(self, sent: int) -> None:
        """So many bytes of what waits are on their way."""
        waiting = self._waiting
        self.waiting_bytes -= sent
        while sent:
            first = waiting.popleft()
            if sent < len(first):
                waiting.appendleft(memoryview(first)[sent:])
                return
            sent -= len(first)

    def _tell_waiting(self) -> None:
        while self._told and self._socket is not None and not self._waiting:
            self.send(self._told.pop(next(iter(self._told))))

    # --- the connection -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause = self._limits.first_pause_seconds
        while True:
            began = self._loop.time()
            connected = await self._dial()
            if connected is not None:
                await self._until_lost(connected)
                if self._loop.time() - began > self._limits.last_pause_seconds:
                    pause = self._limits.first_pause_seconds
            await self._rest(self._limits.last_pause_seconds if self._refused else pause)
            pause = min(2 * pause, self._limits.last_pause_seconds)

    async def _rest(self, seconds: float) -> None:
        self._hurry.clear()
        timer = self._loop.call_later(seconds, self._hurry.set)
        try:
            await self._hurry.wait()
        finally:
            timer.cancel()

    async def _until_lost(self, connected: socket.socket) -> None:
        lost = self._lost = self._loop.create_future()
        self._socket = connected
        self._loop.add_reader(connected, self._read)
        self._owner.on_link(self, True)
        self._tell_waiting()
        try:
            await lost
        finally:
            self._drop("closed")
        self._owner.on_link(self, False)

    async def _dial(self) -> socket.socket | None:
        """A connection that was welcomed, or None."""
        self._refused = self.absent = False
        self._ending = NOT_FOUND
        host, port = self._address
        seconds = self._limits.dial_seconds
        try:
            async with asyncio.timeout(seconds):
                found = await self._resolve(host, port)
            endings = []
            for family, _, _, _, address in found:
                connected = await self._try_for(seconds / len(found), family, address)
                if connected is not None:
                    self.problem = ""
                    return connected
                endings.append(self._ending)
            # One address of several that refuses says nothing: the process may listen at another. One of a
            # kind that this machine has no way to reaches nobody anyhow.
            endings = [each for each in endings if each != NO_WAY]
            self._ending = endings[-1] if endings else self._ending
            if not self._bulk and endings and all(each == NOBODY_THERE for each in endings):
                self.absent = True
                self._owner.on_absent()
        except Refused as error:
            self._refused = True
            self._ending = f"it refuses this node: {error}"
            self._owner.on_refused(str(error))
        except (OSError, ValueError) as error:  # TimeoutError is an OSError, what is malformed a ValueError
            log_of_links.debug("%s: %s", self._name, error)
        except Exception:
            log_of_links.exception("%s: dialing failed", self._name)
        self.problem = self._ending
        return None

    async def _resolve(self, host: str, port: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
        """Addresses of a name, from a thread; a number is its own."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return found  # type: ignore[return-value]

    async def _try_for(
        self, seconds: float, family: int, address: tuple[object, ...]
    ) -> socket.socket | None:
        """As `_try`, for a while: an address that answers nothing leaves time for the next one."""
        try:
            async with asyncio.timeout(seconds):
                return await self._try(family, address)
        except TimeoutError as error:
            log_of_links.debug("%s: %s", self._name, error)
            return None

    async def _try(self, family: int, address: tuple[object, ...]) -> socket.socket | None:
        """Connect, greet and be welcomed. Raises Refused, and ValueError or OSError for any other end."""
        try:
            connected = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._ending = self._why(error, family)
            return None
        self._ending = NO_ANSWER
        try:
            connected.setblocking(False)
            tune(connected, self._limits.dead_ms)
            try:
                await self._loop.sock_connect(connected, address)
            except OSError as error:
                connected.close()
                self._ending = self._why(error, family)
                return None
            self._ending = SILENT
            buffers, _ = self._owner.greeting(self._bulk)
            await self._loop.sock_sendall(connected, b"".join(buffers))
            answer = await self._answer(connected)
            if isinstance(answer, HandshakeRejected):
                raise Refused(answer.reason)
            if not isinstance(answer, HandshakeAccepted):
                raise MalformedMessage(f"a {type(answer).__name__} for a welcome")
        except (OSError, ValueError):
            self._ending = NO_LISTENER
            connected.close()
            raise
        except BaseException:
            connected.close()
            raise
        return connected

    def _why(self, error: OSError, family: int) -> str:
        log_of_links.debug("%s: %s", self._name, error)
        if isinstance(error, ConnectionRefusedError):
            return NOBODY_THERE
        if family == socket.AF_INET6 and error.errno in _NO_WAY_ERRORS:
            return NO_WAY
        return (error.strerror or str(error)).lower()

    async def _answer(self, connected: socket.socket) -> object:
        reader = FrameReader(self._limits.greeting_bytes)
        while True:
            count = await self._loop.sock_recv_into(connected, reader.get_buffer())
            if not count:
                raise ConnectionResetError("closed instead of a welcome")
            frames = reader.commit(count)
            if frames:
                return unpack(frames[0])

    def _read(self) -> None:
        """Nothing is ever said to us here: this is the end."""
        connected = self._socket
        if connected is None:
            return
        try:
            said = connected.recv(1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._drop(str(error))
            return
        self._drop("it speaks where it should listen" if said else "closed by the other side")

    def _drop(self, reason: str) -> None:
        """The connection is over. Calls nobody: this may be in the midst of somebody's turn."""
        connected, self._socket = self._socket, None
        if connected is None:
            return
        log_of_links.debug("%s: %s", self._name, reason)
        self._loop.remove_reader(connected)
        if self._waiting:
            self._loop.remove_writer(connected)
        self._waiting.clear()
        self.waiting_bytes = 0
        connected.close()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    def hurry(self) -> None:
        """The peer is there: do not wait any longer, unless it was it who refused us."""
        if not self._refused:
            self._hurry.set()

    def stop(self) -> asyncio.Task[None]:
        """Dial no more, drop what waits; nobody is told. The task has still to end."""
        self._task.cancel()
        self._drop("closed")
        return self._task
