"""The feed's load: what a transaction without its body is, and one topic read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.load.feed import CLIENT, fill_feed, read_feed, transaction, without_values
from bench.load.wire import UnexpectedResponse
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection
from compat_tests.targets import LockstepTarget
from lockstep.kafka_client.client import Client
from lockstep.protocol.records.batch import read_header, verify
from lockstep.transactions.records import ProducerIdentity, batch_of, committed_in


def test_a_batch_without_bodies_is_the_same_feed() -> None:
    request, parts = transaction(7, 500)
    batch = batch_of(parts[0], request, ProducerIdentity(3, 1, 9), "t", bytes(16), 1_000)
    small = without_values(batch)
    verify(small, 0, read_header(small))
    assert len(batch) - len(small) > 500
    (before,), (after,) = (committed_in(each, 0, 0, None)[0] for each in (batch, small))
    assert (before.value, after.value) == (b"x" * 500, None)
    assert (after.request, after.headers, after.offset) == (before.request, before.headers, before.offset)
    assert str(after.request) == f"{CLIENT}/0/7"


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
        with pytest.raises(UnexpectedResponse, match="300 transactions read, 301 written"):
            read_feed({**job, **window, "transactions": 301})
    assert found["all_transactions"] >= 600 and found["all_transactions"] % 300 == 0
    assert found["client_us"] > 0 and found["transactions_per_s"] > 0
