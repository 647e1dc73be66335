"""Brokers for tests: the real one, in this process, on small files."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from lockstep.broker.produce.producer_state import ProducerState
from lockstep.broker.requests import time_slices
from lockstep.broker.server import Broker
from lockstep.broker.settings.config import Settings
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from tests.broker.appends import HOUR_MS, NOW_MS, Transactional, World
from tests.broker.cluster.brokers import SMALL, BrokerCluster
from tests.broker.wire import Client

StartBroker = Callable[..., Awaitable[Broker]]
StartCluster = Callable[..., Awaitable[BrokerCluster]]


def small_settings(directory: Path, **texts: str) -> Settings:
    """Settings for a test; keywords are property names with underscores for dots."""
    given = {name.replace("_", "."): text for name, text in texts.items()}
    return from_texts({**SMALL, "log.dirs": str(directory), **given})


@pytest.fixture
async def start_broker(tmp_path: Path) -> AsyncIterator[StartBroker]:
    """Starts brokers (on one directory unless told otherwise) and stops them at the end."""
    started: list[Broker] = []

    async def start(directory: Path | None = None, **texts: str) -> Broker:
        broker = Broker(small_settings(directory or tmp_path / "data", **texts))
        await broker.start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        await broker.stop()


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    return await start_broker()


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    connected = await Client.connect(broker.port)
    yield connected
    await connected.close()


@pytest.fixture
async def start_cluster(tmp_path: Path) -> AsyncIterator[StartCluster]:
    """`await start_cluster(3)` starts that many nodes that found a cluster; keywords are properties."""
    started: list[BrokerCluster] = []

    async def start(founders: int = 3, **texts: str) -> BrokerCluster:
        cluster = BrokerCluster(tmp_path / "cluster", founders, **texts)
        started.append(cluster)
        await cluster.start()
        return cluster

    yield start
    for cluster in started:
        await cluster.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A log group without a server."""
    producers = ProducerState(HOUR_MS * 24)
    group = await LogGroup.open(
        tmp_path,
        GroupOptions(1, 1, LogOptions(segment_bytes=1 << 20)),
        clock_ms=lambda: NOW_MS,
        on_fatal=lambda error: None,
        tail_machines={"producers": producers},
    )
    (partition,) = await group.open_partitions([(bytes(range(16)), 0)])
    yield World(group, partition, producers)
    await group.close()


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Transactional]:
    """The same with two partitions, for transactions."""
    made = await Transactional(tmp_path).open()
    yield made
    await made.group.close()


@pytest.fixture
def one_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step takes longer than a turn."""
    monkeypatch.setattr(time_slices, "clock", itertools.count(0.0, 0.03).__next__)
