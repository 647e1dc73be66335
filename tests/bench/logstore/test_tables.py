"""Seed 001's figures as numbers."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from bench.logstore import tables
from bench.logstore.client import open_loop
from bench.logstore.node import COUNT, LENGTH
from compat_tests.probe import HOST


def _run(experiment: str, mb_per_s: float, device: int, **store: Any) -> dict[str, Any]:
    replica = {"commits": 10, "flushes": 10, "bytes_per_payload_byte": {"log": 1.1, "zero fill": 0.0}}
    figures = {
        "mb_per_s": mb_per_s,
        "payloads_per_s": 1000.0,
        "p50_ms": 1.0,
        "p99_ms": 2.0,
        "cpu_share": {"leader": 0.9, "followers": [0.4, 0.3], "client": 0.2},
        "device": {"write_bytes": device},
        "device_bytes_per_payload_byte_and_replica": 1.1,
        "replicas": [replica] * 3,
        "allocated_bytes": 100 * device,
        "log_bytes": device,
    }
    return {
        "experiment": experiment,
        "store": {"replicas": 3, "flush": True, "naive": False, "depth": 4, "loss": 0.0, **store},
        "load": {"payload_bytes": 1024, "batch": 32, "rate": 1000.0},
        "figures": figures,
    }


def test_tables() -> None:
    runs = [
        _run("7a", 1.0, 50),
        _run("7a", 1.0, 100, naive=True),
        *(_run(name, 1.0, 10) for name in ("7b", "7c", "7d", "pipeline")),
        {**_run("7c", 1.0, 1), "figures": {"error": "lost"}},
    ]
    result = {"runs": runs, "axes": {"batch_rate": 10_000}}
    assert tables.relative_to_naive(tables.runs_of(result, "7a", True))[1024]["device"] == 0.5
    text = tables.summary(result)
    assert "leader 90%, all 180%" in text
    assert "100% of offered" in text
    assert "1.100" in text


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
