"""The feed measured: what a transaction without its body is, what is compared, and one topic read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bench.feed.command import judged
from bench.feed.figures import table
from bench.feed.load import CLIENT, fill_feed, projected, read_feed, transaction
from bench.load.wire import WrongAnswer
from bench.page.document import page
from bench.settings import FLUSH
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection
from compat_tests.targets import LockstepTarget
from lockstep.client import Client
from lockstep.transactions.records import Identity, batch_of, committed_in
from protocol.records.batch import read_header, verify


def test_a_batch_without_bodies_is_the_same_feed() -> None:
    request, parts = transaction(7, 500)
    batch = batch_of(parts[0], request, Identity(3, 1, 9), "t", bytes(16), 1_000)
    small = projected(batch)
    verify(small, 0, read_header(small))
    assert len(batch) - len(small) > 500
    (before,), (after,) = (committed_in(each, 0, 0, None)[0] for each in (batch, small))
    assert (before.value, after.value) == (b"x" * 500, None)
    assert (after.request, after.headers, after.offset) == (before.request, before.headers, before.offset)
    assert str(after.request) == f"{CLIENT}/0/7"


def _sessions(*blocks: tuple[int, float, float]) -> list[dict[str, Any]]:
    return [
        {
            "side": "subject",
            "memory": {},
            "blocks": [
                {
                    "name": f"feed{body_bytes}",
                    "policy": FLUSH,
                    "proven": True,
                    "figures": {
                        "client_us": client_us,
                        "broker_us": broker_us,
                        "batch_bytes": 200 + body_bytes,
                        "project_us": 30.0,
                        "transactions_per_s": 1e6 / client_us,
                    },
                }
                for body_bytes, client_us, broker_us in blocks
            ],
        }
    ]


def test_what_a_body_costs_is_above_the_empty_one() -> None:
    sessions = _sessions((0, 20.0, 1.0), (1_000, 22.0, 2.0), (10_000, 40.0, 6.0))
    rows, problems = judged([*sessions, *_sessions((1_000, 24.0, 4.0))])
    assert problems == []
    assert [(row["body_bytes"], row["above_us"]) for row in rows] == [(0, 0.0), (1_000, 5.0), (10_000, 25.0)]
    lines = table({"rows": rows}).splitlines()
    assert lines[-1].split()[-2:] == ["25.0", "30.0"]


def test_without_empty_bodies_nothing_is_said() -> None:
    rows, problems = judged(_sessions((1_000, 22.0, 2.0)))
    assert rows == [] and len(problems) == 1


def test_a_topic_is_filled_and_read_whole(tmp_path: Path) -> None:
    with LockstepTarget({"log.flush": "os"}, directory=tmp_path) as target:

        async def make() -> None:
            async with Client(target.bootstrap) as client:
                await client.create_topic("f", partitions=1, configs={"lockstep.locks": "true"})

        asyncio.run(make())
        job = {"bootstrap": target.bootstrap, "topic": "f", "transactions": 300, "body_bytes": 1_000}
        filled = fill_feed(job)
        assert 1_000 < filled["batch_bytes"] < 1_300 and filled["project_us"] > 0
        with RawConnection(HOST, target.port) as raw:
            assert raw.list_offset("f", -1)["offset"] == 300
        window = {"warmup_s": 0.0, "seconds": 0.1}
        found = read_feed({**job, **window})
        with pytest.raises(WrongAnswer, match="300 transactions read, 301 written"):
            read_feed({**job, **window, "transactions": 301})
    assert found["all_transactions"] >= 600 and found["all_transactions"] % 300 == 0
    assert found["client_us"] > 0 and found["transactions_per_s"] > 0


def test_the_page_tells_of_contention_and_of_bodies() -> None:
    machine = {"processor": "P", "cpus": 2, "memory_gb": 8, "kernel": "6", "disk": {"device": "vda"}}
    shared = {
        "command": "python -m bench",
        "started": "2026-01-01T00:00:00Z",
        "code": {"commit": "0123456789abcdef", "dirty": False},
        "machine": {**machine, "file_system": "e", "python": "3.11", "java": "17", "kafka": "4.3.1"},
        "failures": [],
    }
    rows, _ = judged(_sessions((0, 20.0, 1.0), (10_000, 40.0, 6.0)))
    contended = {"accounts": 1000, "goodput_per_s": 1234.0, "refusals_per_success": 0.01, "p50_ms": 1.0}
    contended |= {"p99_ms": 2.0, "least_share": 0.93, "longest_wait_s": 0.2, "mean_wait_s": 0.01}
    text = page(
        [
            {**shared, "kind": "feed", "rows": rows},
            {**shared, "kind": "contention", "rows": [contended], "failures": ["1 hot accounts: too few"]},
        ]
    )
    assert text.index("## Contention") < text.index("Failed: 1 hot accounts") < text.index("## A feed")
    assert "1,234" in text and "contention.svg" in text and "| 25.0" in text
