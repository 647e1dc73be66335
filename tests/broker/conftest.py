"""Brokers for tests: the real one, in this process, on small files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from broker.config import Settings, from_texts
from broker.server import Broker
from tests.broker.wire import Client

StartBroker = Callable[..., Awaitable[Broker]]

SMALL = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "lockstep.segment.bytes": str(1 << 20),
    "lockstep.spare.segments": "1",
    "message.max.bytes": "200000",
    "lockstep.shutdown.timeout.ms": "500",
    "log.flush": "os",
}


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
