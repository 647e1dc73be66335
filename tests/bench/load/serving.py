"""Small servers for the load generator, that answer well, badly, or in pieces; and a job for them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator

Answer = Callable[[int, int], Iterable[bytes]]
"""(correlation id, number of the request on its connection) -> the pieces to send, with a pause between."""


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[int]:
    """A server that answers each frame with what `answer` says; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock, sock.makefile("rb") as stream:
            number = 0
            while head := stream.read(4):
                frame = stream.read(int.from_bytes(head, "big"))
                number += 1
                for piece in answer(struct.unpack_from(">i", frame, 4)[0], number):
                    sock.sendall(piece)
                    time.sleep(0.001)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                threading.Thread(target=serve, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def job(port: int, **words: object) -> dict[str, object]:
    return {
        "host": "127.0.0.1",
        "port": port,
        "topic": "t",
        "record_bytes": 16,
        "partitions": 1,
        "records": 1,
        "spread": "turns",
        "warmup_s": 0.05,
        "seconds": 0.15,
        **words,
    }
