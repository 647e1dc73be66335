"""A broker that takes players, for blocks that are run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.sessions.children import HOSTING
from bench.sessions.jobs import Block
from compat_tests.targets import ROOT, LockstepTarget
from lockstep.kafka_client.client import Client


class OneBroker:
    """Of a `Session` what blocks need: a broker that speaks Kafka's protocol, topics, no device."""

    def __init__(self, target: LockstepTarget, directory: Path) -> None:
        self.target = target
        self.directory = directory
        self.blocks: list[Block] = []
        self._topics = 0

    def leader_directory(self, topic: str) -> Path:
        return self.directory / "node"

    def topic(self, policy: str, partitions: int = 1) -> str:
        self._topics += 1
        name = f"{policy}-{self._topics}"

        async def make() -> None:
            async with Client(self.target.bootstrap) as client:
                await client.create_topic(name, partitions=partitions)

        asyncio.run(make())
        return name

    def observe(self, name: str, policy: str, work: Callable[[], Block], *, max_outstanding: int) -> Block:
        self.blocks.append({"name": name, "figures": work(), "outstanding": max_outstanding})
        return self.blocks[-1]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Any]:
    words: Any = {"directory": tmp_path / "node", "environment": {"PYTHONPATH": str(ROOT)}}
    with LockstepTarget({"log.flush": "os"}, command=HOSTING, **words) as target:
        yield OneBroker(target, tmp_path)
