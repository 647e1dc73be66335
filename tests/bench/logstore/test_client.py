"""The open loop's latencies."""

from __future__ import annotations

import socket
import threading
import time

from bench.logstore.client import open_loop
from bench.logstore.node import COUNT, LENGTH
from compat_tests.probe import HOST


def test_what_was_due_in_the_window_and_is_answered_after_it_has_a_latency_too() -> None:
    silence_s = 0.6

    def store(listener: socket.socket) -> None:
        stream, _ = listener.accept()
        silent_until = time.monotonic() + silence_s
        received, answered = bytearray(), 0
        with stream:
            while data := stream.recv(1 << 16):
                received += data
                frame = LENGTH.size + LENGTH.unpack_from(received)[0]
                time.sleep(max(silent_until - time.monotonic(), 0.0))
                whole = len(received) // frame
                if whole > answered:
                    answered = whole
                    stream.sendall(COUNT.pack(whole))

    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=store, args=(listener,))
        thread.start()
        job = {"port": listener.getsockname()[1], "batch": 1, "payload_bytes": 64, "rate": 100}
        found = open_loop({**job, "stream_bytes_per_s": 0, "warmup_s": 0.1, "seconds": 0.2})
        thread.join()
    assert found["payloads_per_s"] == 0.0
    assert found["p50_ms"] >= (silence_s - 0.3) * 1e3
