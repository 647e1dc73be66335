"""The first SCRAM users, from the setting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from lockstep.broker.controller import initial_scram_users
from lockstep.broker.controller.initial_scram_users import InitialUser, add_initial_users, parse_initial_users
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.security.scram_users import ScramChange
from lockstep.broker.server import Broker
from lockstep.broker.settings.properties import ConfigError
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.protocol.errors import ErrorCode
from tests.broker.conftest import StartBroker, small_settings
from tests.broker.waiting import until
from tests.support.cases import each_case

ADMIN = "SCRAM-SHA-512=[name=admin,password=secret]"


@each_case(
    ("text", "users"),
    [
        ("", []),
        (ADMIN, [("SCRAM-SHA-512", "admin", "secret", 4096)]),
        (
            f"{ADMIN}, SCRAM-SHA-256=[name=b,iterations=8192,password=a=b]",
            [("SCRAM-SHA-512", "admin", "secret", 4096), ("SCRAM-SHA-256", "b", "a=b", 8192)],
        ),
    ],
)
def test_users_of_the_setting(text: str, users: list[tuple[str, str, str, int]]) -> None:
    assert parse_initial_users(text) == tuple(InitialUser(*each) for each in users)


@each_case(
    ("text", "problem"),
    [
        ("admin", "not of the form"),
        (f"{ADMIN} {ADMIN}", "not of the form"),
        ("SCRAM-SHA-1=[name=a,password=hush]", "SCRAM-SHA-1 is none of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-512=[name=a]", "user 1 needs name=, password="),
        ("SCRAM-SHA-512=[password=hush]", "user 1 needs name=, password="),
        (f"{ADMIN},SCRAM-SHA-512=[name=a,password=hush,salt=x]", "user 2 needs name=, password="),
        ("SCRAM-SHA-512=[name=a,password=hush,iterations=1]", "iterations of user 1: from 4096 to 16384"),
        ("SCRAM-SHA-512=[name=a,password=hush,iterations=x]", "iterations of user 1: from 4096 to 16384"),
    ],
)
def test_mistakes_show_no_password(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        parse_initial_users(text)
    assert "hush" not in str(refused.value) and "secret" not in str(refused.value)


async def test_they_are_stored_once_this_node_is_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_scram_users, "POLL_INTERVAL_SECONDS", 0)
    stored: dict[tuple[str, str], ScramChange] = {}
    leads, failures = False, [RequestError(ErrorCode.NOT_CONTROLLER, "not any more")]

    async def record(changes: Sequence[ScramChange]) -> None:
        if failures:
            raise failures.pop()
        stored.update({(each.mechanism, each.user): each for each in changes})

    users = parse_initial_users(f"{ADMIN},SCRAM-SHA-256=[name=b,password=x]")
    adding = asyncio.ensure_future(add_initial_users(users, lambda: leads, lambda: stored, record))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not stored and not adding.done()
    leads = True
    await asyncio.wait_for(adding, 20)
    assert not failures and list(stored) == [("SCRAM-SHA-512", "admin"), ("SCRAM-SHA-256", "b")]
    former = dict(stored)
    await asyncio.wait_for(add_initial_users(users, lambda: leads, lambda: stored, record), 20)
    assert stored == former


async def test_a_broker_stores_them_and_a_bad_one_stops_the_start(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker(lockstep_scram_users=ADMIN)
    image = broker.assembly.image
    await until(lambda: ("SCRAM-SHA-512", "admin") in image.scram)
    with pytest.raises(ConfigError, match="not of the form"):
        await Broker(small_settings(tmp_path / "other", lockstep_scram_users="admin")).start()
    assert "secret" not in str(from_texts({"lockstep.scram.users": ADMIN}).warnings)
