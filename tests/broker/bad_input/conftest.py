"""What must hold after every bad input: no traceback in the log, and the broker serves the next client."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from lockstep.broker.server import Broker
from tests.broker.bad_input.attack import serves_others
from tests.broker.conftest import StartBroker


@pytest.fixture(autouse=True)
async def nothing_unexpected(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """A client's mistake is a line without a traceback; a traceback is a mistake of ours."""
    with caplog.at_level(logging.INFO, "lockstep"):
        yield
    records = caplog.get_records("call")
    unexpected = [each for each in records if each.exc_info or each.levelno >= logging.ERROR]
    assert not unexpected, [each.getMessage() for each in unexpected]


@pytest.fixture
async def target(start_broker: StartBroker) -> AsyncIterator[Broker]:
    """A broker to be attacked; afterwards it must still serve."""
    broker = await start_broker()
    yield broker
    await serves_others(broker)
