"""Real clients as load: whole transactions, timed."""

from __future__ import annotations

from pathlib import Path

from bench.load.clients import client_transactions
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection
from compat_tests.targets import LockstepTarget


def test_a_client_times_whole_transactions(tmp_path: Path) -> None:
    with LockstepTarget(directory=tmp_path) as target:
        with RawConnection(HOST, target.port) as raw:
            raw.create_topic("t", 3)
        job = {"topic": "t", "bootstrap": target.bootstrap, "partitions": 3, "record_bytes": 100}
        result = client_transactions({**job, "seconds": 0.6, "warmup_s": 0.2})
        with RawConnection(HOST, target.port) as raw:
            ends = [raw.list_offset("t", -1, partition=index)["offset"] for index in range(3)]
    assert result["total_transactions"] > 2
    assert sum(ends) == result["total_records"] == 6 * result["total_transactions"]
    assert 0 < result["commit_p50_ms"] <= result["p50_ms"] <= result["p99_ms"]
