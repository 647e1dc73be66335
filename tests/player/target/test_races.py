"""Streams of all ages at two processes of one target, over one store: each record is applied once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from lockstep.player.target.sessions import StoreSessions, TargetSettings
from tests.player.target.stores import NAME, Ledger, SqliteLedger
from tests.player.target.streams import Answered, batch, hello

LAST = 120
STREAMS = 30


class Race:
    """A log of LAST + 1 positions, each seventh of which is nothing of this target's."""

    def __init__(self, ledger: Ledger, seed: str, inline: bool) -> None:
        self.ledger = ledger
        self.drawn = random.Random(seed)
        settings = TargetSettings(transaction_entries=10, waiting_entries=20)
        self.processes = [StoreSessions(ledger.store(), settings, inline=inline) for _ in range(2)]
        self.acknowledged = -1

    async def run(self) -> None:
        await asyncio.gather(
            *[self._stream(1, term, self.drawn.random() < 0.7) for term in range(1, STREAMS)]
        )
        term = STREAMS
        while self.acknowledged < LAST:
            await self._stream(2, term, True)
            term += 1
        for process in self.processes:
            await process.close()

    async def _stream(self, player_term: int, term: int, is_patient: bool) -> None:
        """One stream; those that are not patient are closed somewhere in between."""
        await self._pause(term)
        answered = Answered()
        before = self.acknowledged
        session = self.drawn.choice(self.processes).open_session(hello(player_term, term), answered)
        if is_patient:
            await answered.first()
        else:
            await self._pause(20)
        if not answered.said or answered.said[0][0] != "greeted":
            session.on_closed()
            return
        position = answered.said[0][1]
        assert isinstance(position, int)
        assert position >= before, "what was acknowledged is gone"
        previous = max(-1, position - self.drawn.randrange(4))
        while previous < LAST and not session.is_closed and (is_patient or self.drawn.random() < 0.8):
            through = min(LAST, previous + self.drawn.randint(1, 5))
            wanted = range(previous + 1, through + 1)
            session.receive(batch(previous, *wanted, dummies=[at for at in wanted if is_nothing(at)]))
            previous = through if self.drawn.random() < 0.9 else previous  # sometimes again
            await self._pause(2)
            await session.wait_for_room()
        if is_patient:
            session.heartbeat()  # it may have begun at the end
            await answered.over(LAST)
        session.on_closed()
        told = [int(str(said[1])) for said in answered.said if said[0] == "acknowledged"]
        assert told == sorted(told)
        self.acknowledged = max([self.acknowledged, *told])
        assert stored_position(self.ledger) >= self.acknowledged, "acknowledged, and not stored"

    async def _pause(self, most: int) -> None:
        for _ in range(self.drawn.randrange(most + 1)):
            await asyncio.sleep(0)


def stored_position(ledger: Ledger) -> int:
    log = ledger.store().open(NAME)
    mark = log.load()
    log.close()
    return -1 if mark is None else mark.position


def is_nothing(position: int) -> bool:
    return position % 7 == 6


@pytest.mark.parametrize("inline", [False, True], ids=["threads", "inline"])
@pytest.mark.parametrize("seed", range(8))
async def test_sqlite(tmp_path: Path, seed: int, inline: bool) -> None:
    await check(SqliteLedger(tmp_path / "state.db"), f"{seed} {inline}", inline)


@pytest.mark.parametrize("seed", range(2))
async def test_each_store(ledger: Ledger, seed: int) -> None:
    await check(ledger, f"each {seed}", False)


async def check(ledger: Ledger, seed: str, inline: bool) -> None:
    await Race(ledger, seed, inline).run()
    assert ledger.applied() == [at for at in range(LAST + 1) if not is_nothing(at)]
