"""Each transport in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.player.transport.kinds import ALL, ON_SOCKETS, Kind, opened


@pytest.fixture(params=ALL)
async def kind(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kind]:
    async with opened(request.param, tmp_path) as it:
        yield it


@pytest.fixture(params=ON_SOCKETS)
async def on_sockets(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kind]:
    async with opened(request.param, tmp_path) as it:
        yield it
