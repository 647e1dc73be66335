"""One outgoing connection to a peer: dialed again until it is stopped, a handshake, then only written to.

Invariants: a frame goes to the kernel before `send` returns, unless older bytes wait; the loop writes the
bytes that the kernel did not take, and a link with nothing to send costs the loop nothing. The waiting bytes
are bounded, and are lost with the connection. With TLS (`tls_socket`) the handshake is sent only to the node
that its certificate names. `send` raises nothing and calls no listener: a lost link is
reported in a later iteration of the loop. Does not know the content of frames.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import deque
from itertools import islice
from typing import Protocol

from lockstep.protocol.frame_reader import FrameReader
from lockstep.protocol.peer_messages import HandshakeAccepted, HandshakeRejected
from lockstep.protocol.primitives import Buffer, MalformedMessage
from lockstep.storage.peers.envelope import Frame, unpack
from lockstep.storage.peers.limits import PeerLimits, tune
from lockstep.storage.peers.peer_identity import NoPeerIdentity, PeerIdentity
from lockstep.storage.peers.peer_tls import NO_TLS, PeerTls, describe_failure, identity_in, is_alert
from lockstep.storage.peers.tls_socket import TlsSocket

log_of_links = logging.getLogger(__name__)

BUFFERS_PER_WRITE = 1024
"""The most buffers that Linux takes in one call (IOV_MAX)."""


NOT_FOUND = "its address is not found"
NO_RESPONSE = "no response from there"
CONNECTION_REFUSED = "connection refused: nothing listens there"
HANDSHAKE_TIMEOUT = "what listens there is silent: is it the replication listener of a node?"
NO_LISTENER = "what listens there is not a replication listener: a port for clients?"
NO_ROUTE = "this machine has no route to an address of that kind"
_NO_ROUTE_ERRORS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH})
"""The errors of an IPv6 address on a machine without IPv6."""


class LinkListener(Protocol):
    """The callbacks of a link, always in an iteration of the loop of their own."""

    def handshake_frame(self, bulk: bool) -> Frame:
        """Returns the handshake."""

    def on_link(self, link: Link, up: bool) -> None:
        """Called when the handshake is complete, or the connection is lost."""

    def on_process_stopped(self) -> None:
        """Called when the host of the address rejects the connection."""

    def on_rejection(self, reason: str) -> None:
        """Called when the other side rejects the handshake; it is dialed again later."""

    def on_tls_failure(self, reason: str) -> None:
        """Called when TLS fails, or the other side is another node; it is dialed again later."""


class TlsFailed(Exception):
    """There is no TLS with the node that was dialed; the text is about "it", or about what listens there."""


class RejectedByPeer(Exception):
    """The other side rejected the handshake; the text is its own."""


class Link:
    """See the module."""

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        bulk: bool,
        owner: LinkListener,
        loop: asyncio.AbstractEventLoop,
        limits: PeerLimits,
        tls: PeerTls | None = None,
        node_id: int = -1,
    ) -> None:
        self._address = address
        self._tls = tls
        self._node_id = node_id
        self._name = name
        self._bulk = bulk
        self._listener = owner
        self._loop = loop
        self._limits = limits
        self._bound = limits.bulk_bytes if bulk else limits.control_bytes
        self._socket: socket.socket | TlsSocket | None = None
        self._waiting: deque[Buffer] = deque()
        self.waiting_bytes = 0
        """Bytes that the kernel did not take yet."""
        self._latest: dict[int, Frame] = {}
        """The newest notifications that have not begun to travel, by topic."""
        self._lost: asyncio.Future[None] | None = None
        self._wake_up = asyncio.Event()
        self._is_rejected = False
        self._ending = ""
        """The problem to report if the current dial fails."""
        self.problem = ""
        """Why the last dial failed; "" where it did not, or none has ended yet."""
        self.absent = False
        """Whether the last dial called `on_process_stopped`, and none has begun since."""
        self._task = loop.create_task(self._run())

    # --- sending ------------------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """True from the end of the handshake until the connection is known to be lost."""
        return self._socket is not None

    def send(self, frame: Frame) -> bool:
        """Sends a frame at once, or after waiting ones; False where there is no link or too many bytes
        wait."""
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
            self._on_sent(sent)
            self._loop.add_writer(connected, self._write)
        return True

    def notify(self, topic: int, frame: Frame) -> None:
        """Sends it when there is room; an older one of this topic that has not begun to travel is dropped."""
        if self._waiting or self._socket is None:
            self._latest[topic] = frame
        else:
            self.send(frame)

    def _write(self) -> None:
        """Writes waiting bytes when the kernel takes more."""
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
        self._on_sent(sent)
        if not self._waiting:
            self._loop.remove_writer(connected)
            self._send_latest()

    def _on_sent(self, sent: int) -> None:
        """Removes this number of waiting bytes, which the kernel took."""
        waiting = self._waiting
        self.waiting_bytes -= sent
        while sent:
            first = waiting.popleft()
            if sent < len(first):
                waiting.appendleft(memoryview(first)[sent:])
                return
            sent -= len(first)

    def _send_latest(self) -> None:
        while self._latest and self._socket is not None and not self._waiting:
            self.send(self._latest.pop(next(iter(self._latest))))

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
            await self._pause(self._limits.last_pause_seconds if self._is_rejected else pause)
            pause = min(2 * pause, self._limits.last_pause_seconds)

    async def _pause(self, seconds: float) -> None:
        self._wake_up.clear()
        timer = self._loop.call_later(seconds, self._wake_up.set)
        try:
            await self._wake_up.wait()
        finally:
            timer.cancel()

    async def _until_lost(self, connected: socket.socket | TlsSocket) -> None:
        lost = self._lost = self._loop.create_future()
        self._socket = connected
        self._loop.add_reader(connected, self._read)
        self._listener.on_link(self, True)
        self._send_latest()
        try:
            await lost
        finally:
            self._drop("closed")
        self._listener.on_link(self, False)

    async def _dial(self) -> socket.socket | TlsSocket | None:
        """Returns a connection after its handshake, or None."""
        self._is_rejected = self.absent = False
        self._ending = NOT_FOUND
        host, port = self._address
        seconds = self._limits.dial_seconds
        try:
            async with asyncio.timeout(seconds):
                found = await self._resolve(host, port)
            endings = []
            for family, _, _, _, address in found:
                connected = await self._try_with_timeout(seconds / len(found), family, address)
                if connected is not None:
                    self.problem = ""
                    return connected
                endings.append(self._ending)
            # One address of several that rejects is no proof: the process may listen at another. An address
            # of a kind without a route from this machine reaches no process anyhow.
            endings = [each for each in endings if each != NO_ROUTE]
            self._ending = endings[-1] if endings else self._ending
            if not self._bulk and endings and all(each == CONNECTION_REFUSED for each in endings):
                self.absent = True
                self._listener.on_process_stopped()
        except RejectedByPeer as error:
            self._is_rejected = True
            self._ending = f"it rejects this node: {error}"
            self._listener.on_rejection(str(error))
        except TlsFailed as error:
            self._is_rejected = True
            self._ending = str(error)
            self._listener.on_tls_failure(self._ending)
        except (OSError, ValueError) as error:  # TimeoutError is an OSError, what is malformed a ValueError
            log_of_links.debug("%s: %s", self._name, error)
        except Exception:
            log_of_links.exception("%s: dialing failed", self._name)
        self.problem = self._ending
        return None

    async def _resolve(self, host: str, port: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
        """Resolves a name, in a thread; a number is its own address."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return found  # type: ignore[return-value]

    async def _try_with_timeout(
        self, seconds: float, family: int, address: tuple[object, ...]
    ) -> socket.socket | TlsSocket | None:
        """Calls `_try` with a timeout: a silent address leaves time for the next one."""
        try:
            async with asyncio.timeout(seconds):
                return await self._try(family, address)
        except TimeoutError as error:
            log_of_links.debug("%s: %s", self._name, error)
            return None

    async def _try(self, family: int, address: tuple[object, ...]) -> socket.socket | TlsSocket | None:
        """Connects and completes the handshake. Raises RejectedByPeer, TlsFailed, and ValueError or OSError
        for any other end."""
        connected: socket.socket | TlsSocket
        ending = NO_LISTENER
        try:
            connected = plain = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._ending = self._describe_error(error, family)
            return None
        self._ending = NO_RESPONSE
        try:
            plain.setblocking(False)
            tune(plain, self._limits.dead_ms)
            try:
                await self._loop.sock_connect(plain, address)
            except OSError as error:
                connected.close()
                self._ending = self._describe_error(error, family)
                return None
            self._ending = HANDSHAKE_TIMEOUT
            if self._tls is not None and self._tls.dials:
                ending = NO_TLS
                connected = await self._secure(plain, self._tls)
                ending = NO_LISTENER
            buffers, _ = self._listener.handshake_frame(self._bulk)
            if isinstance(connected, TlsSocket):
                await connected.send_all(self._loop, b"".join(buffers))
            else:
                await self._loop.sock_sendall(connected, b"".join(buffers))
            response = await self._await_handshake_response(connected)
            if isinstance(response, HandshakeRejected):
                raise RejectedByPeer(response.reason)
            if not isinstance(response, HandshakeAccepted):
                raise MalformedMessage(f"a {type(response).__name__} in response to the handshake")
        except ssl.SSLError as error:
            connected.close()
            if is_alert(error):
                raise RejectedByPeer(describe_failure(error)) from None
            raise TlsFailed(describe_failure(error)) from None
        except (OSError, ValueError):
            self._ending = ending
            connected.close()
            raise
        except BaseException:
            connected.close()
            raise
        return connected

    async def _secure(self, connected: socket.socket, tls: PeerTls) -> TlsSocket:
        """Returns the connection with TLS to the node that is meant. Raises TlsFailed, OSError."""
        secured = TlsSocket(connected, tls.client_context)
        await secured.do_handshake(self._loop)
        meant = PeerIdentity(tls.identity.cluster_id, self._node_id)
        try:
            found = identity_in(secured.certificate())
        except NoPeerIdentity as error:
            raise TlsFailed(str(error)) from None
        if found != meant:
            raise TlsFailed(f"its certificate is of {found}, not of {meant}")
        return secured

    def _describe_error(self, error: OSError, family: int) -> str:
        log_of_links.debug("%s: %s", self._name, error)
        if isinstance(error, ConnectionRefusedError):
            return CONNECTION_REFUSED
        if family == socket.AF_INET6 and error.errno in _NO_ROUTE_ERRORS:
            return NO_ROUTE
        return (error.strerror or str(error)).lower()

    async def _await_handshake_response(self, connected: socket.socket | TlsSocket) -> object:
        reader = FrameReader(self._limits.handshake_bytes)
        while True:
            if isinstance(connected, TlsSocket):
                count = await connected.receive_into(self._loop, reader.get_buffer())
            else:
                count = await self._loop.sock_recv_into(connected, reader.get_buffer())
            if not count:
                raise ConnectionResetError("closed during the handshake")
            frames = reader.commit(count)
            if frames:
                return unpack(frames[0])

    def _read(self) -> None:
        """Handles readable bytes: the other side never sends here, so this is the end."""
        connected = self._socket
        if connected is None:
            return
        try:
            received = connected.recv(1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._drop(str(error))
            return
        self._drop("the other side sent unexpected bytes" if received else "closed by the other side")

    def _drop(self, reason: str) -> None:
        """Closes the connection. Calls no listener: a caller of `send` may be on the stack."""
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

    def retry_now(self) -> None:
        """Dials without further delay, since the peer is reachable, unless it rejected us."""
        if not self._is_rejected:
            self._wake_up.set()

    def stop(self) -> asyncio.Task[None]:
        """Stops dialing and drops waiting bytes without a callback. The task has still to end."""
        self._task.cancel()
        self._drop("closed")
        return self._task
