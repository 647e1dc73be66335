"""Atomic appends as load: the request, and one client's loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kio.schema.produce.v9.request import ProduceRequest as KioProduceRequest
from kio.serial import entity_reader

from bench.load.appends import atomic_appends, atomic_request
from bench.load.wire import UnexpectedResponse, record_batch
from bench.sessions.commits import commits_by_topic
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection
from compat_tests.targets import LockstepTarget
from lockstep.kafka_client.client import Client
from lockstep.protocol.compiler import encode
from lockstep.transactions.log import AppendRefused


def test_the_request_is_marked_and_otherwise_like_any() -> None:
    batch = record_batch(1, 10, 0)
    body = b"".join(encode(atomic_request("t", [batch, batch]), 9))
    unmarked = atomic_request("t", [batch, batch])
    unmarked.unknown_tags = {}
    plain = b"".join(encode(unmarked, 9))
    read, length = entity_reader(KioProduceRequest)(plain, 0)
    assert length == len(plain)
    assert [each.index for each in read.topic_data[0].partition_data] == [0, 1]
    assert body == plain[:-1] + b"\x01\x90\x4e\x00", "one tag, 10000 as a varint, empty"


@pytest.mark.parametrize(("bare", "problem"), [(False, AppendRefused), (True, UnexpectedResponse)])
def test_appends_are_timed_and_are_one_entry_each(
    tmp_path: Path, bare: bool, problem: type[Exception]
) -> None:
    with LockstepTarget({"lockstep.data.groups": "2"}, directory=tmp_path) as target:

        async def make(topic: str, configs: dict[str, str]) -> None:
            async with Client(target.bootstrap) as client:
                await client.create_topic(topic, partitions=3, configs=configs)

        asyncio.run(make("together", {"lockstep.group": "2", "lockstep.locks": "true"}))
        asyncio.run(make("apart", {"lockstep.locks": "true"}))
        job = {"bootstrap": target.bootstrap, "partitions": 3, "record_bytes": 100, "bare": bare}
        window = {"seconds": 0.3, "warmup_s": 0.1}
        result = atomic_appends({**job, **window, "topic": "together"})
        with pytest.raises(problem, match="one log group"):
            atomic_appends({**job, **window, "topic": "apart"})
        with RawConnection(HOST, target.port) as raw:
            ends = [raw.list_offset("together", -1, partition=index)["offset"] for index in range(3)]
        target.stop()
        commits = commits_by_topic(target.data_dir)
    assert result["total_transactions"] > 2
    assert ends == [result["total_transactions"]] * 3 and sum(ends) == result["total_records"]
    assert (commits["together"], commits["apart"]) == (result["total_transactions"], 0)
    assert 0 < result["p50_ms"] <= result["p99_ms"]
