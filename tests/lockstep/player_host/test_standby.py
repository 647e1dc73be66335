"""Two processes of one log: one plays, and the other when the first is gone, stands still, or fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from lockstep.player.core.messages import Entry
from lockstep.player.driver.errors import PlayerStopped
from lockstep.player.target.target_position import Mark
from lockstep.player_host.config import ClaimsConfig
from lockstep.player_host.standby import StandbyState, stand_by
from lockstep.testing.memory_log import MemoryLog as ClaimsLog
from tests.lockstep.player_host.claimants import check, claims_of, written
from tests.lockstep.player_host.test_players import players_of
from tests.player.driver.doubles import LOG_ID, MemoryLog, MemoryStreams, has_all, until

QUICK = ClaimsConfig(renew_ms=20, lease_ms=60)
SLOW = ClaimsConfig(renew_ms=20, lease_ms=600_000)
LASTING = ClaimsConfig(renew_ms=600_000, lease_ms=600_000)


class Process:
    """One of several."""

    def __init__(self, claims: ClaimsLog, name: str, source: MemoryLog, settings: ClaimsConfig) -> None:
        self.claims = claims_of(claims, name, name, settings)
        self.streams: MemoryStreams
        self.source = source
        self.standing = StandbyState(0, LOG_ID)
        self.task: asyncio.Task[None]

    async def start(self, streams: MemoryStreams) -> Process:
        await self.claims.open()
        players = players_of(streams, *streams.targets)
        self.task = asyncio.create_task(stand_by(self.standing, self.source, self.claims, players, 10))
        return self

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError, PlayerStopped):
            await self.task
        await self.claims.close()


@pytest.fixture
def claims() -> ClaimsLog:
    return ClaimsLog(partitions=1, seed=1)


async def test_a_clean_stop_hands_over_at_once(claims: ClaimsLog) -> None:
    log, streams = MemoryLog(), MemoryStreams("a")
    anna = await Process(claims, "anna", log, SLOW).start(streams)
    await until(lambda: anna.standing.is_delivering)
    bert = await Process(claims, "bert", log, SLOW).start(streams)
    log.append("a")
    await until(lambda: has_all(log, streams))
    assert not bert.standing.is_delivering
    await anna.stop()
    log.append("a")
    await until(lambda: has_all(log, streams))
    await until(lambda: bert.standing.is_delivering)
    await bert.stop()
    assert [each[0] for each in streams["a"].greetings] == [1, 2]
    check(written(claims))


async def test_a_superseded_player_stops_its_delivery(
    claims: ClaimsLog, caplog: pytest.LogCaptureFixture
) -> None:
    log, streams = MemoryLog(), MemoryStreams("a")
    anna = await Process(claims, "anna", log, SLOW).start(streams)
    await until(lambda: has_all(log, streams) and anna.standing.is_delivering)
    anna.claims._topic.suspend_subscription(0)  # type: ignore[attr-defined]  # it hears of it from a refusal alone
    bert = claims_of(claims, "bert", "bert", SLOW)
    await bert.open()
    held = await bert.claim(LOG_ID, at_once=True)
    assert held.claim.player_term == 2
    anna.claims._topic.resume_subscription(0)  # type: ignore[attr-defined]
    await until(lambda: not anna.standing.is_delivering)
    assert caplog.messages == ["topic-0: bert has claimed it in term 2; standing by"]
    await anna.stop()
    await bert.close()
    check(written(claims))


async def test_a_target_that_knows_a_higher_term(claims: ClaimsLog, caplog: pytest.LogCaptureFixture) -> None:
    """The topic of the claims was lost, say: the next claim is above what the targets have seen."""
    log, streams = MemoryLog(), MemoryStreams("a")
    log.append("a")
    target = streams["a"]
    target.mark = Mark(LOG_ID, 7, 3, -1)
    target.restart()
    anna = await Process(claims, "anna", log, QUICK).start(streams)
    await until(lambda: has_all(log, streams))
    await anna.stop()
    assert next(each.player_term for each in written(claims)) == 1
    assert written(claims)[-1].player_term == 8
    assert caplog.messages == ["topic-0: a player in term 7 has opened a stream to a target; standing by"]


@pytest.mark.parametrize(("log_group", "name"), [(None, "topic-0"), (3, "topic in log group 3")])
async def test_log_lines_name_the_log_as_people_know_it(
    claims: ClaimsLog, log_group: int | None, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="lockstep.player")
    log, streams = MemoryLog(), MemoryStreams("a")
    log.log_group = log_group
    claims.expire_next()
    anna = await Process(claims, "anna", log, LASTING).start(streams)
    await until(lambda: anna.standing.is_delivering)
    claims.fail_next()
    await anna.stop()
    assert caplog.messages == [
        f"{name}: no claim could be sent: as the test wants it",
        f"{name}: delivered here in term 1",
        f"{name}: the claim was not released: as the test wants it",
    ]


async def test_a_failed_delivery_is_ended_and_reported(claims: ClaimsLog) -> None:
    log, streams = MemoryLog(), MemoryStreams("a")
    anna = await Process(claims, "anna", log, SLOW).start(streams)
    await until(lambda: anna.standing.is_delivering)
    log.entries.append(Entry(0, None))  # the router does not know what to do with it
    log.next_position = 1
    log.end()
    with pytest.raises(PlayerStopped):
        await asyncio.wait_for(anna.task, 20)
    assert not anna.standing.is_delivering
    assert written(claims)[-1].player is None
    await anna.stop()
