"""Claims in a real broker's topic: made, kept short, and claimed by processes that die, stop and wake up."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lockstep.kafka_client.client import EARLIEST, Client
from lockstep.kafka_client.connection import ClientError
from lockstep.player_host import claims as module
from lockstep.player_host.claim_table import LogClaim, claim_of
from lockstep.player_host.claims import PARTITION, ClaimLost, Claims
from lockstep.player_host.claims_topic import ClaimsTopic
from lockstep.player_host.config import ClaimsConfig
from lockstep.protocol.config_resources import ResourceType
from lockstep.testing import RunningBroker
from lockstep.transactions.model import Committed
from tests.lockstep.player_host.claimants import check
from tests.player.driver.doubles import until

LOG = "cluster/topic/0"
PATIENT = ClaimsConfig(renew_ms=20, lease_ms=600_000)
ROOT = Path(__file__).parents[3]
RENEW_MS, LEASE_MS = 200, 1500


async def opened(running: RunningBroker, topic: str, player: str) -> Claims:
    claims = Claims(ClaimsTopic(running.bootstrap_servers, topic, player), player, PATIENT)
    await claims.open()
    return claims


async def written(running: RunningBroker, topic: str) -> list[LogClaim]:
    """All claims that the topic has."""
    log = ClaimsTopic(running.bootstrap_servers, topic, "reader")
    await log.open()
    position, end = await log.first_position(), await log.end(PARTITION)
    entries: list[Committed] = []
    while position < end:
        chunk = await log.read(PARTITION, position, 1.0)
        entries += chunk.entries
        position = chunk.position
    await log.close()
    found = [claim_of(record) for entry in entries for record in entry.records]
    return [claim for claim in found if claim is not None]


async def test_the_topic_is_made_for_claims(running: RunningBroker, topic: str) -> None:
    claims = await opened(running, topic, "anna")
    async with Client(running.bootstrap_servers) as client:
        configs = {each.name: each.value for each in await client.configs(ResourceType.TOPIC, topic)}
    wanted = {"lockstep.locks": "true", "retention.ms": "-1", "retention.bytes": "-1"}
    assert wanted.items() <= configs.items()
    await claims.close()


async def test_a_topic_without_locks_is_refused(running: RunningBroker, topic: str) -> None:
    async with Client(running.bootstrap_servers) as client:
        await client.create_topic(topic, partitions=1)
    with pytest.raises(ClientError, match=r"locks need lockstep\.locks=true"):
        await opened(running, topic, "anna")


async def test_of_three_at_once_one_claims(running: RunningBroker, topic: str) -> None:
    players = [await opened(running, topic, name) for name in ("anna", "bert", "clara")]
    trying = {asyncio.create_task(each.claim(LOG)): each for each in players}
    done, pending = await asyncio.wait(trying, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    (first,) = done
    held = first.result()
    assert (held.claim.player_term, len(pending)) == (1, 2)
    await trying[first].release(held)
    done, pending = await asyncio.wait(pending, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    assert [each.result().claim.player_term for each in done] == [2]
    for task in pending:
        task.cancel()
    for each in players:
        await each.close()
    found = await written(running, topic)
    check(found)
    assert [each.player_term for each in found] == [1, 1, 2]


async def test_a_claim_that_was_taken_is_not_renewed(running: RunningBroker, topic: str) -> None:
    anna, bert = await opened(running, topic, "anna"), await opened(running, topic, "bert")
    held = await anna.claim(LOG)
    keeping = asyncio.create_task(anna.keep(held))
    await asyncio.wait_for(bert.claim(LOG, at_once=True), 30)
    with pytest.raises(ClaimLost, match="bert has claimed"):
        await asyncio.wait_for(keeping, 30)
    for each in (anna, bert):
        await each.close()
    check(await written(running, topic))


async def test_what_is_superseded_is_deleted(
    running: RunningBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SUPERSEDED_RECORDS", 3)
    anna = await opened(running, topic, "anna")
    bert = await opened(running, topic, "bert")
    keeping = asyncio.create_task(anna.keep(await anna.claim(LOG)))
    async with Client(running.bootstrap_servers) as client:
        found = await client.topic(topic)
        async with asyncio.timeout(30):
            while (await client.offsets(found, [0], EARLIEST))[0] < 6:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    keeping.cancel()
    clara = await opened(running, topic, "clara")
    for each in (bert, clara):
        claim = each.holder(LOG)
        assert claim is not None
        assert (claim.player, claim.player_term) == ("anna", 1)
    second = await asyncio.wait_for(clara.claim(LOG, at_once=True), 30)
    assert second.claim.player_term == 2
    for each in (anna, bert, clara):
        await each.close()


class Process:
    """A claimant of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.said.append(line.decode().strip())

    def has(self, start: str) -> bool:
        return any(line.startswith(start) for line in self.said)

    @property
    def term(self) -> int:
        """Of its newest claim."""
        return max((int(line.split()[1]) for line in self.said if line.startswith("claimed")), default=0)

    async def end(self) -> None:
        for number in (signal.SIGCONT, signal.SIGKILL):
            if self.process.returncode is None:
                self.process.send_signal(number)
        await self.process.wait()
        await self._reading


@asynccontextmanager
async def processes(running: RunningBroker, topic: str) -> AsyncIterator[Callable[[str], object]]:
    started: list[Process] = []

    async def start(name: str) -> Process:
        process = Process(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.lockstep.player_host.claimant_process"),
                *(running.bootstrap_servers, topic, name, LOG, str(RENEW_MS), str(LEASE_MS)),
                stdout=asyncio.subprocess.PIPE,
                cwd=ROOT,
            )
        )
        started.append(process)
        await until(lambda: process.has("open"))
        return process

    try:
        yield start
    finally:
        for each in started:
            await each.end()


async def test_processes_that_die_and_stop_and_wake_up(running: RunningBroker, topic: str) -> None:
    async with processes(running, topic) as start:
        anna: Process = await start("anna")  # type: ignore[misc]
        await until(lambda: anna.term > 0)
        bert: Process = await start("bert")  # type: ignore[misc]
        anna.process.kill()
        await until(lambda: bert.term > anna.term)
        bert.process.send_signal(signal.SIGSTOP)
        clara: Process = await start("clara")  # type: ignore[misc]
        await until(lambda: clara.term > bert.term)
        lost = bert.term
        bert.process.send_signal(signal.SIGCONT)
        await until(lambda: bert.has(f"lost {lost}: clara has claimed"))
        holder = clara if clara.term > bert.term else bert
        other = bert if holder is clara else clara
        before = holder.term
        holder.process.terminate()
        await until(lambda: other.term > before)
    found = await written(running, topic)
    check(found)
    assert len({each.player_term for each in found}) >= 4
