"""The same on the loop that brokers run on: uvloop has its own ways with sockets that are not its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction, signature
from pathlib import Path
from typing import Any

import uvloop

from tests.storage.peers import test_groups, test_incoming, test_network, test_outgoing, test_tls_transport
from tests.support.cases import each_case

Case = Callable[[], Coroutine[Any, Any, None]]

CASES: list[Case] = [
    each
    for module in (test_incoming, test_network, test_outgoing, test_tls_transport)
    for name, each in vars(module).items()
    if name.startswith("test_") and iscoroutinefunction(each) and not signature(each).parameters
]


@each_case("case", CASES, ids=lambda case: case.__name__.removeprefix("test_"))
def test_on_uvloop(case: Case) -> None:
    uvloop.run(case())


def test_groups_on_uvloop(tmp_path: Path) -> None:
    uvloop.run(test_groups.test_three_members_elect_replicate_and_go_on_without_one(tmp_path))
