"""The same on the loop that players and targets run on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.player.transport import test_transports
from tests.player.transport.kinds import ON_SOCKETS, Kind, opened

Case = Callable[[Kind], Coroutine[Any, Any, None]]

CASES: list[Case] = [
    each
    for name, each in vars(test_transports).items()
    if name.startswith("test_") and iscoroutinefunction(each) and "tmp_path" not in each.__annotations__
]


@pytest.mark.parametrize("name", ON_SOCKETS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("test_"))
def test_on_uvloop(case: Case, name: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(name, tmp_path) as kind:
            await case(kind)

    uvloop.run(run())
