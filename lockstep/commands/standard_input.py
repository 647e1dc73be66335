"""Lines of standard input for an event loop: as many at a time as are there.

A daemon thread reads, because neither a file nor every terminal can be watched by the loop, and because a
read that never returns must not hold up the end of the program. It reads from the descriptor: Python aborts
at its end while a daemon thread holds the lock of a buffered stream.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO

from lockstep.failures import CommandFailed

_CHUNKS_AHEAD = 2
_MAX_LINE_BYTES = 64 * 1024 * 1024


async def lines_of(stream: BinaryIO, read_bytes: int) -> AsyncIterator[list[bytes]]:
    """Whole lines, without their ends, in lists as they arrive. A last line without an end counts.

    Raises CommandFailed when the stream cannot be read, or a line is longer than any broker takes.
    """
    rest = bytearray()  # a pipe brings a long line in many pieces
    async for chunk in _chunks(stream, read_bytes):
        whole, end, last = chunk.rpartition(b"\n")
        if not end:
            rest += chunk
            if len(rest) > _MAX_LINE_BYTES:
                raise CommandFailed(f"a line of more than {_MAX_LINE_BYTES} bytes")
            continue
        rest += whole
        yield [_strip_carriage_return(line) for line in bytes(rest).split(b"\n")]
        rest = bytearray(last)
    if rest:
        yield [_strip_carriage_return(bytes(rest))]


def _strip_carriage_return(line: bytes) -> bytes:
    return line[:-1] if line.endswith(b"\r") else line


async def _chunks(stream: BinaryIO, read_bytes: int) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS_AHEAD)
    read = _reader_of(stream)

    def pump() -> None:
        item: bytes | OSError = b"-"
        while item and not isinstance(item, OSError):
            room.acquire()
            try:
                item = read(read_bytes)
            except OSError as error:
                item = error
            try:
                loop.call_soon_threadsafe(queue.put_nowait, item)
            except RuntimeError:
                return  # the loop has ended without us

    threading.Thread(target=pump, name="standard-input", daemon=True).start()
    while True:
        item = await queue.get()
        room.release()
        if isinstance(item, OSError):
            raise CommandFailed(f"cannot read standard input: {item.strerror}")
        if not item:
            return
        yield item


def _reader_of(stream: BinaryIO) -> Callable[[int], bytes]:
    """Reads the available bytes, up to a limit; nothing may have been read from `stream` before."""
    try:
        descriptor = stream.fileno()
    except OSError:
        return stream.read  # in memory: no terminal, no pipe

    def read(length: int) -> bytes:
        while True:
            try:
                return os.read(descriptor, length)
            except BlockingIOError:  # the parent process shares a descriptor that does not block
                select.select([descriptor], [], [])

    return read
