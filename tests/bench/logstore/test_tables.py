"""Seed 001's figures as numbers and as a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench import runner
from bench.logstore import tables
from bench.logstore.command import Logstore


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
    assert (
        runner.main(
            Logstore, ["--plot", str(tmp_path / "result.json"), "--picture", str(tmp_path / "picture.svg")]
        )
        == 0
    )
    assert "</svg>" in (tmp_path / "picture.svg").read_text()
