"""A port of this machine in front of a broker's, that counts: who is answered by whom shows in the bytes.

    with Relay(node.port) as relay:
        read_from(f"127.0.0.1:{relay.port}")
        assert relay.answered_bytes > 1000

Brokers tell clients this port (`advertised.listeners`). Invariant: a connection that either side closes is
closed to the other one, too; where nobody listens behind, it is closed at once. Does not: look at what it
carries.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

from compat_tests.probe import HOST

_CHUNK_BYTES = 1 << 16


class Relay:
    """Args: to_port: the broker's."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self.answered_bytes = 0
        """What came back from the broker, over all connections."""
        self._open: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End every connection."""
        self._closed = True
        for each in (self._listening, *self._open):
            _end(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection((HOST, self._to_port))
        except OSError:
            client.close()
            return
        self._open |= {client, broker}
        asking = threading.Thread(target=self._pump, args=(client, broker, False), daemon=True)
        asking.start()
        self._pump(broker, client, True)
        asking.join()
        self._open -= {client, broker}
        client.close()
        broker.close()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                if answers:
                    self.answered_bytes += len(data)
                sink.sendall(data)
        _end(source)
        _end(sink)


def _end(each: socket.socket) -> None:
    """Whoever waits on it is to notice."""
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
