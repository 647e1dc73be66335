"""One client's connection: frames in, replies out in the order of their requests.

Invariants: requests are dispatched in order and may complete in any; replies leave in order. The replies of
one loop iteration are written together unless there are too many. A connection is not read while too many
bytes of it are in flight or unsent, or too many of all clients, so no client exceeds the broker's memory
limits; nor after its requests have used up a time slice, so that none delays the others; nor while one of
them continues in later slices (`PendingResponse.blocks_connection`). A client's bytes or a handler's error
end at most this connection. An idle connection keeps a few KB. Does not: decode requests
(`broker/requests/router.py`), know what they mean, or count those of other connections
(`connection_registry.py`).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Any, Final

from lockstep.broker.network.channel_mute import ChannelMute
from lockstep.broker.network.connection_registry import Connections
from lockstep.broker.network.response_encoder import JOIN_BELOW_BYTES, EncodedReply, coalesce, encode_reply
from lockstep.broker.requests.fast_path import ConnectionFastPath, Reply, RoutedReply
from lockstep.broker.requests.request_context import ConnectionRejected, EncodedResponse, PendingResponse
from lockstep.broker.requests.time_slices import TIME_SLICE_SECONDS
from lockstep.protocol.api import ApiKey, read_request_header
from lockstep.protocol.fields import Struct
from lockstep.protocol.frame_reader import MAX_UNRESERVED_BYTES, FrameReader, MalformedFrame
from lockstep.protocol.primitives import Buffer, MalformedMessage

FETCH: Final = (ApiKey.FETCH).to_bytes(2, "big")
"""A second Fetch of a connection waits for the first: each may hold tens of megabytes."""
IMMEDIATE: Final = (Struct, EncodedResponse)
"""Types of a complete response; any other result completes later."""
SLOW_CLIENT_TIMEOUT_SECONDS: Final = 30.0
"""The longest time without progress while other connections wait for memory, or after the close."""
SLOW_CLIENT_MIN_BYTES: Final = 512 << 10
"""Fewer bytes of a request are no progress while others wait."""


class Connection(ChannelMute, asyncio.BufferedProtocol):
    """One client."""

    __slots__ = (
        "_active", "_blocking_reply", "_closing", "_fast_requests", "_fetching", "_frame_bytes", "_host",
        "_idle_since", "_is_blocked", "_is_resuming", "_last_received", "_last_unsent", "_output",
        "_output_bytes", "_pending_reply_bytes", "_queued_frames", "_reader",
        "_reading", "_replies", "_shared", "_slice_seconds", "_slice_since", "_transport", "_unsent_bytes",
        "_writable", "context",
    )  # fmt: skip

    def __init__(self, shared: Connections, listener: str) -> None:
        super().__init__()
        self._shared = shared
        self.context = shared.client_of(listener)
        self._reader = FrameReader(shared.max_frame_bytes)
        self._fast_requests: ConnectionFastPath | None = None
        """The fast path of its first Produce or Fetch, from then on; an idle connection has none."""
        self._replies: list[Reply] | None = None
        """The requests without a response so far, in order, oldest first; None while there is none."""
        self._blocking_reply: RoutedReply | None = None
        """A request in a task: the next one is dispatched after it, as in Kafka. Otherwise a topic could be
        created again before its deletion is complete."""
        self._output: list[Buffer] = []
        self._output_bytes = 0
        self._pending_reply_bytes = 0
        """Bytes of complete replies that wait for older ones."""
        self._queued_frames: deque[memoryview] | None = None
        """Whole frames received and not dispatched; nothing is read while there are any."""
        self._frame_bytes = 0
        """The memory of a large frame in `unfinished_frames`, until its request is dispatched."""
        self._unsent_bytes = 0
        """The part of this connection in `UnsentBytes.total`."""
        self._reading = True
        self._writable = True
        self._closing = False
        self._fetching = False
        self._is_resuming = False
        self._is_blocked = False
        """True while a request continues in later slices: nothing is read before its end."""
        self._slice_seconds = self._slice_since = 0.0
        """The time that dispatches took since the last pause, and the start of the current one."""
        self._active = True
        self._idle_since = 0.0
        self._last_received = self._last_unsent = 0
        """The received bytes of an unfinished request at the last progress, and the unsent bytes at the last
        check."""
        self._host = ""
        self._transport: Any = None

    # --- asyncio's side -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("?", 0)
        local = transport.get_extra_info("sockname") or ("", 0)
        self._host = str(peer[0])
        self.context.peer = f"{peer[0]}:{peer[1]}"
        self.context.local_host = str(local[0])
        error = self._shared.admit(self, self._host)
        if error is not None:
            self._shared.log_client_error(self.context.peer, error)
            self.abort()
            return
        connected_socket = transport.get_extra_info("socket")
        if connected_socket is not None:
            connected_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=self._shared.write_buffer_bytes)
        if self._shared.quotas.has_connection_rates:
            self._pauses, self._queued_frames = 1, deque()  # bytes may arrive before `_admit` is called
            self._shared.loop.call_soon(self._admit)

    def _admit(self) -> None:
        self._shared.throttles.admit(self, self._host)
        self._end_pause()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._active = True
        failure: MalformedFrame | None = None
        try:
            frames = self._reader.commit(nbytes)
        except MalformedFrame as error:
            frames, failure = error.frames, error
        if self._closing:
            return
        if self._queued_frames is not None:
            self._queued_frames.extend(frames)
        elif frames:
            self._dispatch_all(frames)
        if self._reader.is_full:
            if not self._has_frame_memory():
                self._pause_reading()
        elif self._frame_bytes:
            self._release_frame_memory()
        if failure is not None and not self._closing:
            self._reject(str(failure), key=str(failure))

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable = False
        self._count_unsent()

    def resume_writing(self) -> None:
        self._writable = self._active = True
        self._count_unsent()
        self.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.remove(self, self._host)
        self._shared.unsent_bytes.total -= self._unsent_bytes
        self._unsent_bytes = 0
        self._release()

    # --- requests -----------------------------------------------------------------------------------------

    def _dispatch_all(self, frames: list[memoryview]) -> None:
        self._slice_since = self._shared.clock()
        for index, frame in enumerate(frames):
            if self._must_wait(frame):
                self._queued_frames = deque(frames[index:])
                self._pause_reading()
                return
            self._dispatch(frame)
            if self._closing:
                return
            if self._is_out_of_time():
                self._queue_until_next_slice(frames[index + 1 :])
                return

    def _continue_slice(self, frames: list[memoryview]) -> None:
        """Dispatch what was received behind a request that is dispatched, if there is time."""
        if self._is_out_of_time():
            self._queue_until_next_slice(frames)
        else:
            self._dispatch_all(frames)

    def _queue_until_next_slice(self, frames: list[memoryview]) -> None:
        self._queued_frames = deque(frames)
        self._pause_reading()

    def _must_wait(self, frame: memoryview) -> bool:
        """True if this request may not be dispatched yet: `resume` is called when it may."""
        if self._output_bytes > self._shared.write_buffer_bytes:
            self.write_out()
        if not self._writable or self._pending_reply_bytes > self._shared.write_buffer_bytes:
            return True
        if self._blocking_reply is not None or (self._fetching and frame[:2] == FETCH):
            return True
        if self._replies is not None and len(self._replies) >= self._shared.max_in_flight:
            return True
        return self._shared.waits_for_memory(self, frame)

    def _is_out_of_time(self) -> bool:
        """True if the time slice is used up: `resume` continues in the next one.

        Counted from the last pause: several reads and responses of one iteration may each dispatch requests.
        """
        now = self._shared.clock()
        self._slice_seconds += now - self._slice_since
        self._slice_since = now
        if self._pauses or self._closing:
            return not self._closing
        if self._slice_seconds < TIME_SLICE_SECONDS:
            return False
        self._slice_seconds = 0.0
        self._pauses += 1
        self._shared.time_slicer.schedule(self._end_pause)
        return True

    def _end_pause(self) -> None:
        self._pauses -= 1
        if not self._closing:
            self.resume()

    def resume(self) -> None:
        """Dispatch the queued requests as far as limits allow, then read again."""
        if self._is_resuming or self._pauses:
            return  # an immediate response: the loop below continues anyway, or the next iteration does
        self._is_resuming = True
        self._slice_since = self._shared.clock()
        try:
            while self._queued_frames and not self._closing:
                if self._must_wait(self._queued_frames[0]):
                    return
                self._dispatch(self._queued_frames.popleft())
                if self._is_out_of_time():
                    return
        finally:
            self._is_resuming = False
        if self._is_blocked:
            return
        self._queued_frames = None
        if self._frame_bytes:
            self._release_frame_memory()
        if self._reading or self._closing or not self._writable or self._shared.stopping:
            return
        if not self._reader.is_full or self._has_frame_memory():
            self._reading = True
            self._transport.resume_reading()

    def _has_frame_memory(self) -> bool:
        """True if there is memory for the rest of an unfinished frame; if not, `resume` is called later."""
        frame_bytes = self._reader.next_buffer_bytes
        if frame_bytes > MAX_UNRESERVED_BYTES:
            shared = self._shared
            more = frame_bytes - self._frame_bytes
            if not shared.unfinished_frames.grow(self, more, shared.frame_room_bytes):
                return False
            self._frame_bytes = frame_bytes
        return True

    def _release_frame_memory(self) -> None:
        """Release a finished frame's memory; while its request is queued, only its queue position."""
        if not self._reader.next_buffer_bytes:
            freed = 0 if self._queued_frames else self._frame_bytes
            self._frame_bytes -= freed
            self._shared.unfinished_frames.release(self, freed)

    def _stop_dispatch(self) -> None:
        """Queue what is received from now on, and read nothing."""
        self._queued_frames = self._queued_frames or deque()
        self._pause_reading()

    def _pause_reading(self) -> None:
        if self._reading and not self._closing:
            self._reading = False
            self._transport.pause_reading()

    def _dispatch(self, frame: memoryview) -> None:
        requests = self._fast_requests
        try:
            reply = None if requests is None else requests.append(frame)
            if reply is None:
                self._route(frame)
            elif reply.buffers is None:
                self._enqueue(reply)
            else:
                self._output_at_once(reply, reply.buffers)
        except MalformedMessage as error:
            self._reject(str(error))
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """The dispatch of a request has raised this."""
        self._reject("a request failed, the broker closes its connection", error)

    def _route(self, frame: memoryview) -> None:
        """Decode a request and have its handler serve it."""
        shared = self._shared
        header, pos = read_request_header(frame)
        api_key = header.api_key
        if self._fast_requests is None and api_key in shared.fast_paths:
            self._fast_requests = shared.fast_paths[api_key].open(self, self.context)
        throttle = shared.throttles.begin(self, header) if shared.quotas.is_active else None
        if throttle is None:
            response = shared.router.route(self.context, header, frame, pos)
        else:
            response = throttle.route(shared.router, frame, pos)
        if isinstance(response, IMMEDIATE):
            buffers, reply_bytes = encode_reply(header, response)
            if self._replies is None and reply_bytes <= shared.write_buffer_bytes:
                self._queue_output(buffers, reply_bytes)
            else:
                reply = EncodedReply(self, header, len(frame), False)
                reply.buffers, reply.reply_bytes = buffers, reply_bytes
                self._output_at_once(reply, buffers)
        elif response is not None:
            request_bytes = len(frame)
            if isinstance(response, PendingResponse) and not response.holds_request:
                request_bytes = 0
            is_fetch = api_key == ApiKey.FETCH
            reply = EncodedReply(self, header, request_bytes, is_fetch)
            if throttle is not None:
                reply = throttle.reply(request_bytes, is_fetch)
            self._enqueue(reply)
            pending = response if isinstance(response, PendingResponse) else self._start_task(reply, response)
            if pending.blocks_connection:
                self._block_on(reply)
            reply.pending = pending
            pending.listen(reply.on_done)

    def _output_at_once(self, reply: Reply, buffers: list[Buffer]) -> None:
        """Output a complete reply, or keep it behind those before it."""
        if self._replies is None:
            self._queue_output(buffers, reply.reply_bytes)
        else:
            self._pending_reply_bytes += reply.reply_bytes
            self._enqueue(reply)
        if reply.reply_bytes > self._shared.write_buffer_bytes:
            self._count_unsent()

    def _enqueue(self, reply: Reply) -> None:
        """The reply of a request that is in flight from now on."""
        if reply.holds_fetch:
            self._fetching = True
        if self._replies is None:
            self._replies = [reply]
        else:
            self._replies.append(reply)
        self._shared.on_request_start(reply.request_bytes)

    def _start_task(self, reply: EncodedReply, response: Any) -> PendingResponse:
        """Run a coroutine in a task of its own."""
        self._blocking_reply = reply
        return PendingResponse.from_awaitable(response)

    def _block_on(self, reply: RoutedReply) -> None:
        """Dispatch and read nothing else until this reply is complete."""
        self._blocking_reply, self._is_blocked = reply, True
        self._stop_dispatch()

    # --- replies ------------------------------------------------------------------------------------------

    def on_response(self, reply: RoutedReply, pending: PendingResponse) -> None:
        """A response is complete; send the replies that are next in order."""
        if self._closing or self._replies is None:
            return
        if reply is self._blocking_reply:
            self._blocking_reply = None
            self._is_blocked = False
        if pending.failure is not None:
            self._reject("a request failed, the broker closes its connection", pending.failure)
            return
        response = pending.response
        if isinstance(response, PendingResponse):
            self._await_response(reply, response)
            return
        reply.buffers = []
        if response is not None:
            try:
                reply.buffers, reply.reply_bytes = encode_reply(reply.header, response)
            except Exception as error:
                self._reject("a response cannot be encoded", error)
                return
        self.on_reply(reply)

    def on_reply(self, reply: Reply) -> None:
        """A reply has its buffers; send those that are next in order."""
        if self._closing or self._replies is None:
            return
        self._pending_reply_bytes += reply.reply_bytes
        self._send_ready(self._replies)
        if reply.reply_bytes > self._shared.write_buffer_bytes:
            self._count_unsent()
        if self._queued_frames is not None:
            self.resume()

    def _send_ready(self, replies: list[Reply]) -> None:
        """Output the replies that are next in order."""
        while replies and replies[0].buffers is not None:
            reply = replies.pop(0)
            if reply.buffers:
                self._pending_reply_bytes -= reply.reply_bytes
                self._queue_output(reply.buffers, reply.reply_bytes)
            if reply.holds_fetch:
                self._fetching = False
            self._shared.on_request_end(reply.request_bytes)
        if not replies:
            self._replies = None

    def _await_response(self, reply: RoutedReply, pending: PendingResponse) -> None:
        """Wait for a response that a task returned as pending; further requests are dispatched, unless it
        blocks the connection."""
        if not pending.holds_request:
            self._shared.on_request_end(reply.request_bytes)
            reply.request_bytes = 0
        if pending.blocks_connection:
            self._block_on(reply)
        reply.pending = pending
        pending.listen(reply.on_done)
        if self._queued_frames is not None:
            self.resume()

    def _queue_output(self, buffers: list[Buffer], reply_bytes: int) -> None:
        if not self._output:
            self._shared.send_later(self)
        self._output += buffers
        self._output_bytes += reply_bytes

    def write_out(self) -> None:
        """Give the transport all output at once."""
        output = self._output
        if not output or self._closing:
            return
        self._output = []
        total, self._output_bytes = self._output_bytes, 0
        if total < JOIN_BELOW_BYTES:
            self._transport.write(b"".join(output))
        else:
            self._transport.writelines(coalesce(output))
        if self._unsent_bytes:
            self._count_unsent()

    def _count_unsent(self) -> None:
        """Update the shared count of unsent bytes; only where they may be more than the write buffer."""
        unsent = self._pending_reply_bytes + self._output_bytes
        if not self._writable:
            unsent += self._transport.get_write_buffer_size()
        self._shared.unsent_bytes.total += unsent - self._unsent_bytes
        self._unsent_bytes = unsent

    # --- the end ------------------------------------------------------------------------------------------

    @property
    def has_requests(self) -> bool:
        """True if requests are in flight."""
        return bool(self._replies)

    @property
    def is_busy(self) -> bool:
        """True if requests are in flight or output is unsent."""
        return bool(
            self._replies or self._output or (self._transport and self._transport.get_write_buffer_size())
        )

    def quiesce(self) -> None:
        """Take no more requests; close a connection that only waits in a long poll."""
        self._pause_reading()
        self._queued_frames = None
        for reply in self._replies or ():
            pending = reply.pending
            if pending is None:
                continue
            if pending.is_long_poll:
                self.close()
                return
            pending.on_shutdown()

    def reap_idle(self, now: float, max_idle_seconds: float, others_waiting: bool) -> None:
        """Close the connection if it was idle for too long; shrink the buffer of an idle one.

        A client that reads its output is not idle, nor one that waits for memory of others, nor, without a
        large unfinished request, one that waits for a response; a muted one may be, as in Kafka. There is
        less time after `close`, and for a large request while others wait for memory.
        """
        unsent, received = self._transport.get_write_buffer_size(), self._reader.buffered_bytes
        is_active = self._active or unsent < self._last_unsent
        is_slow = self._closing
        if self._frame_bytes and (self._reading or self._is_muted) and others_waiting:
            is_slow = True
            is_active = not 0 <= received - self._last_received < SLOW_CLIENT_MIN_BYTES
        elif self._writable and not is_active and not self._closing:
            is_active = self._shared.is_waiting(self) or (self._replies is not None and not self._frame_bytes)
            is_active |= self._pauses > self._is_muted
        self._active = False
        self._last_unsent = unsent
        if is_active:
            self._idle_since = now
            self._last_received = received
            return
        self._reader.trim()
        self._fast_requests = None
        if now - self._idle_since > (
            min(max_idle_seconds, SLOW_CLIENT_TIMEOUT_SECONDS) if is_slow else max_idle_seconds
        ):
            if self._closing:
                self.abort()
            else:
                self.close()

    def _reject(self, text: str, failure: BaseException | None = None, key: str | None = None) -> None:
        """Close the connection with a rate-limited log line."""
        if isinstance(failure, ConnectionRejected):
            text = str(failure)
            key = text if failure.is_same_for_all_clients else None
            failure = None
        self._shared.log_client_error(self.context.peer, text, failure, key)
        self.write_out()
        self.close()

    def close(self) -> None:
        """Send what was written, then close; `reap_idle` drops what the client does not take."""
        self._release()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._release()
        if self._transport is not None:
            self._transport.abort()

    def _release(self) -> None:
        """Release all shared memory, once: nothing more is dispatched or sent."""
        self._closing = self._active = True
        shared = self._shared
        shared.unfinished_frames.release(self, self._frame_bytes)
        if self._frame_bytes:
            self._frame_bytes = 0
            self._reader = FrameReader(shared.max_frame_bytes)
        replies, self._replies = self._replies, None
        self._queued_frames = self._fast_requests = None
        self._output = []
        self._output_bytes = self._pending_reply_bytes = 0
        if self._unsent_bytes:
            self._count_unsent()
        for reply in replies or ():
            shared.on_request_end(reply.request_bytes)
            pending = reply.pending
            if pending is not None:
                reply.pending = None
                if pending.on_disconnect is not None:
                    pending.on_disconnect()
