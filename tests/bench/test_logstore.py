"""Seed 001's experiments: what is planned, how the naive store writes twice, and one store that works."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bench.load.wire import record_batch
from bench.logstore import tables
from bench.logstore.client import open_loop
from bench.logstore.command import main
from bench.logstore.experiments import FULL, NAMES, QUICK, Run, perform, plan
from bench.logstore.naive import SecondLog
from bench.logstore.node import COUNT, HOST, LENGTH
from bench.logstore.replicas import Load, Store, written_between
from bench.settings import FLUSH, OS
from protocol.records.batch import patch, read_header
from storage.log.file_system import RealFileSystem
from storage.log.inspect import GroupLog
from storage.log.options import LogOptions
from storage.types import DirectoryEntry


def test_the_plan_has_every_figure_and_the_naive_store_beside_ours() -> None:
    runs = plan(FULL, frozenset(NAMES), (FLUSH, OS))
    assert {run.experiment for run in runs} == set(NAMES)
    naive = [run for run in runs if run.store.naive]
    assert {run.experiment for run in naive} == {"7a"}
    assert len(naive) == 2 * len(FULL.payload_bytes)
    volumes = {(run.load.requests, run.load.payload_bytes) for run in naive}
    ours = {(run.load.requests, run.load.payload_bytes) for run in runs if run.experiment == "7a"}
    assert volumes == ours
    assert {run.store.depth for run in runs if run.experiment == "pipeline"} == {0, 1, 2, 4}
    assert all(run.store.replicas == 3 for run in runs if run.experiment != "7d")
    assert {run.experiment for run in plan(QUICK, frozenset({"7b"}), (OS,))} == {"7b"}


def test_the_second_log_holds_every_batch_again_in_one_frame_per_write(tmp_path: Path) -> None:
    second = SecondLog(tmp_path / "second", LogOptions(segment_bytes=1 << 20), RealFileSystem())
    for turn in range(3):
        for place in range(2):
            batch = bytearray(record_batch(2, 64, 0))
            offset = turn * 4 + place * 2
            patch(batch, offset, 1)
            crc = read_header(batch).crc
            second.replay(DirectoryEntry(1, offset, 2, len(batch), crc, 1, 0), batch, 1000 + turn)
        second.write()
    second.write()
    second.close()
    frames = [scanned.frame() for _, scanned in GroupLog(tmp_path / "second", 1001).frames()]
    assert [(frame.record_count, len(frame.directory)) for frame in frames] == [(4, 2)] * 3
    assert sum(entry.length for frame in frames for entry in frame.directory) == 6 * len(batch)


def test_a_frame_of_the_second_log_never_outgrows_a_segment(tmp_path: Path) -> None:
    second = SecondLog(tmp_path / "second", LogOptions(segment_bytes=1 << 20), RealFileSystem())
    batch = record_batch(1, 200_000, 0)
    for place in range(6):
        second.replay(DirectoryEntry(1, place, 1, len(batch), 0, 0, 0), batch, 1)
    second.write()
    assert second.log.last_index >= 3
    second.close()


def test_what_one_replica_wrote_is_told_per_payload_byte_and_commit() -> None:
    before = {"commit_index": 5, "flushes": 9, "lost": 0, "written": {"log": 100, "index": 0}}
    after = {"commit_index": 15, "flushes": 19, "lost": 2, "written": {"log": 1200, "index": 10}}
    told = written_between(before, after, 1000)
    assert told["flushes_per_commit"] == 1.0
    assert told["bytes_per_payload_byte"] == {"log": 1.1, "index": 0.01}
    assert told["lost"] == 2


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


@pytest.mark.parametrize("naive", [False, True])
def test_three_replicas_commit_what_a_client_offers(tmp_path: Path, naive: bool) -> None:
    load = Load(512, 4, 2_000, 20.0, 0.0, requests=100)
    run = Run("7a", Store(naive=naive, recycle=False, loss=0.02, segment_bytes=1 << 20), load)
    ((_, figures),) = perform([run], tmp_path, 0)
    assert figures.get("requests") == 100, figures
    for replica in figures["replicas"]:
        assert replica["bytes_per_payload_byte"]["log"] > (2.0 if naive else 1.0)
        assert replica["bytes_per_payload_byte"]["log"] < (2.6 if naive else 1.6)
    assert not any(tmp_path.iterdir())


def test_a_store_that_has_run_for_long_uses_its_segments_again(tmp_path: Path) -> None:
    store = Store(replicas=1, segment_bytes=1 << 20, kept_bytes=2 << 20)
    load = Load(4096, 32, 2_000, 40.0, 0.0, requests=150)
    ((_, figures),) = perform([Run("7b", store, load)], tmp_path, 12 << 20)
    assert figures.get("requests") == 150, figures
    (replica,) = figures["replicas"]
    assert replica["bytes_per_payload_byte"]["zero fill"] < 0.3


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


def test_tables_and_picture(tmp_path: Path) -> None:
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
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert main(["--plot", str(tmp_path / "result.json"), "--picture", str(tmp_path / "picture.svg")]) == 0
    assert "</svg>" in (tmp_path / "picture.svg").read_text()
