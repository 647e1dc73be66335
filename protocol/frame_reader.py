"""Cuts a byte stream into Kafka's frames: a 4-byte big-endian length, then that many bytes.

Owns: one connection's receive buffer. The reader is shaped for `asyncio.BufferedProtocol` (`get_buffer`,
then `commit` for `buffer_updated`) and does no I/O itself.

Invariants:
- A frame is returned as one view of the receive buffer, without a copy, and stays valid until the next
  `get_buffer()`. (A frame larger than `MAX_REGULAR_BUFFER_BYTES` lives in a buffer of its own and stays
  valid as long as it is referenced.)
- The regular buffer starts small, so that thousands of idle connections are cheap, doubles while reads
  fill it, and halves again after a run of small reads. Only an unfinished last frame is ever moved.
- An announced length costs no memory, only received bytes do: a large frame's buffer has at most twice the
  bytes received of it, or `MAX_UNRESERVED_BYTES` where that is more. So a frame of up to 1 MiB is moved once
  where large frames are usual, and each byte of a larger one once or twice. Its memory goes with the frame.
- That buffer grows in `get_buffer`, not before: a connection that may not take `next_buffer_bytes` more
  memory yet does not read.
- After an error the stream has no known frame boundary; the connection must be closed.

Does not: decode requests, limit how many frames are in flight (that is the connection's back-pressure).

Source: Kafka protocol guide, "Request and response messages"; KIP-498 for the TLS bytes on a plaintext port.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

LENGTH_BYTES: Final = 4
MIN_BUFFER_BYTES: Final = 4 * 1024
MAX_REGULAR_BUFFER_BYTES: Final = 128 * 1024
"""The largest buffer for small frames: a read takes several of a Java producer's 16 KiB batches."""

FIRST_GROWTH: Final = 8
"""The factor by which a small buffer grows: most requests are complete after one or two reads."""
GROWTH_SLACK: Final = 64 * 1024
"""Added when a buffer grows, so that a Java producer's largest request by default, 1 MiB, is moved once."""
MAX_UNRESERVED_BYTES: Final = MAX_REGULAR_BUFFER_BYTES * FIRST_GROWTH + GROWTH_SLACK
"""A buffer up to here is small beside what else a connection may hold; larger ones double."""

READS_BEFORE_SHRINK: Final = 32
_INT32: Final = Struct(">i")
_HTTP_STARTS: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"CONN", b"PRI ", b"HTTP")


class MalformedFrame(ValueError):
    """A length prefix that cannot be one. `frames` are the whole frames that came before it in this read."""

    def __init__(self, text: str, frames: list[memoryview]) -> None:
        super().__init__(text)
        self.frames = frames


class FrameTooLarge(MalformedFrame):
    """A frame beyond the limit; `frame_bytes` is what the peer announced."""

    def __init__(self, text: str, frames: list[memoryview], frame_bytes: int) -> None:
        super().__init__(text, frames)
        self.frame_bytes = frame_bytes


class FrameReader:
    """The receive side of one connection."""

    __slots__ = (
        "_buffer",
        "_end",
        "_large_bytes",
        "_regular",
        "_small_reads",
        "_start",
        "is_full",
        "max_frame_bytes",
    )

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        """Largest frame accepted, length prefix not counted; may be raised or lowered between reads."""
        self._buffer = memoryview(bytearray(MIN_BUFFER_BYTES))
        self._start = 0  # first byte of the frame not yet handed out
        self._end = 0  # end of the received bytes
        self._large_bytes = 0  # size of the large frame that `_buffer` holds the start of, and nothing else
        self.is_full = False
        """Whether the next `get_buffer` takes a larger buffer, for the rest of a large frame."""
        self._regular = self._buffer  # set aside while there is a large frame
        self._small_reads = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of an unfinished frame."""
        return self._end - self._start

    @property
    def capacity_bytes(self) -> int:
        """Memory held for receiving now."""
        return len(self._buffer) + (len(self._regular) if self._buffer is not self._regular else 0)

    @property
    def next_buffer_bytes(self) -> int:
        """Size of the buffer that the next read of an unfinished large frame goes to; 0 without one."""
        if not self._large_bytes:
            return 0
        if not self.is_full:
            return len(self._buffer)
        end = self._end
        grown = end * FIRST_GROWTH + GROWTH_SLACK if end <= MAX_REGULAR_BUFFER_BYTES else end * 2
        return min(self._large_bytes, grown)

    def get_buffer(self, hint: int = -1) -> memoryview:
        """The buffer for the next bytes; never empty. Ends the validity of the frames returned before."""
        start, end = self._start, self._end
        if start == end:
            if start:
                self._start = self._end = 0
            return self._buffer
        if self.is_full:
            self._replace(memoryview(bytearray(self.next_buffer_bytes)))
            self.is_full = False
            return self._buffer[end:]
        if start and len(self._buffer) - end < len(self._buffer) // 2:
            end -= start
            self._buffer[:end] = self._buffer[start : self._end]
            self._start, self._end = 0, end
        return self._buffer[end:]

    def commit(self, count: int) -> list[memoryview]:
        """Commits `count` bytes written to `get_buffer()`; returns the frames that are complete now, in
        order.

        Raises MalformedFrame or FrameTooLarge, carrying the whole frames that came first.
        """
        buffer = self._buffer
        end = self._end = self._end + count
        if self._large_bytes:
            return self._continue_large()
        pos = self._start
        frames: list[memoryview] = []
        limit = self.max_frame_bytes
        needed = LENGTH_BYTES
        while end - pos >= needed:
            (length,) = _INT32.unpack_from(buffer, pos)
            if length < 0 or length > limit:
                self._start = pos
                raise self._malformed_frame(length, frames)
            needed = LENGTH_BYTES + length
            if end - pos >= needed:
                frames.append(buffer[pos + LENGTH_BYTES : pos + needed])
                pos += needed
                needed = LENGTH_BYTES
        self._start = pos
        if needed > len(buffer) and pos == 0 and end == len(buffer):
            self._grow_buffer(needed)
        else:
            self._adapt(count)
        return frames

    def trim(self) -> None:
        """Shrinks an idle connection's buffer to the smallest."""
        if self._start == self._end and len(self._buffer) > MIN_BUFFER_BYTES:
            self._replace_regular(MIN_BUFFER_BYTES)

    def _grow_buffer(self, frame_bytes: int) -> None:
        """Prepares for the rest of an unfinished frame that fills the buffer."""
        if frame_bytes > MAX_REGULAR_BUFFER_BYTES:
            self._large_bytes = frame_bytes
            self.is_full = True
        else:
            self._replace_regular(1 << (frame_bytes - 1).bit_length())

    def _continue_large(self) -> list[memoryview]:
        if self._end < len(self._buffer):
            return []
        if self._end < self._large_bytes:
            self.is_full = True
            return []
        frame = self._buffer[LENGTH_BYTES:]
        self._large_bytes = 0
        self._buffer = self._regular
        self._start = self._end = 0
        if len(self._buffer) < MAX_REGULAR_BUFFER_BYTES:  # the next one may be as large
            self._replace_regular(len(self._buffer) * 2)
        return [frame]

    def _adapt(self, count: int) -> None:
        """Doubles the buffer when a read filled it, halves it when reads stay small."""
        capacity = len(self._buffer)
        if self._end == capacity:
            self._small_reads = 0
            if capacity < MAX_REGULAR_BUFFER_BYTES:
                self._replace_regular(capacity * 2)
        elif count >= capacity // 4:
            self._small_reads = 0
        elif capacity > MIN_BUFFER_BYTES:
            self._small_reads += 1
            if self._small_reads >= READS_BEFORE_SHRINK and self._start == self._end:
                self._replace_regular(capacity // 2)

    def _replace_regular(self, capacity: int) -> None:
        self._replace(memoryview(bytearray(capacity)))
        self._regular = self._buffer

    def _replace(self, buffer: memoryview) -> None:
        """Continues in another buffer, an unfinished frame at its front. Returned frames keep the old one."""
        unread = self._end - self._start
        buffer[:unread] = self._buffer[self._start : self._end]
        self._buffer = buffer
        self._start, self._end = 0, unread
        self._small_reads = 0

    def _malformed_frame(self, length: int, frames: list[memoryview]) -> MalformedFrame:
        prefix = bytes(self._buffer[self._start : self._start + LENGTH_BYTES])
        if prefix[:2] == b"\x16\x03":
            return MalformedFrame("a TLS handshake on a plaintext port", frames)
        if prefix[:2] == b"\x15\x03":
            return MalformedFrame("a TLS alert: the port is one of TLS", frames)
        if prefix in _HTTP_STARTS:
            return MalformedFrame(f"HTTP ({prefix.decode().strip()} ...) on a Kafka port", frames)
        if length < 0:
            return MalformedFrame(f"frame length {length} is negative", frames)
        return FrameTooLarge(
            f"frame of {length} bytes is over the limit of {self.max_frame_bytes}", frames, length
        )
