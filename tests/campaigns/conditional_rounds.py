"""One cluster under faults, and histories of conditional appends on it, each judged when it is over.

Owns: `Round`: topics made and deleted, some histories side by side, and meanwhile kills, changes of leaders
and nodes that stand still, each kind by itself. Invariant: when it is over no node of it runs, and what was
not linearizable is in .cache/linearizable.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from compat_tests.targets import ROOT, TargetFailed
from lockstep.kafka_client import cluster
from lockstep.kafka_client.client import Client, TopicMetadata
from lockstep.kafka_client.connection import ClientError
from tests.campaigns import conditional_history
from tests.campaigns.brokers import Brokers
from tests.campaigns.conditional_clients import History, Writer

KEPT: Final = ROOT / ".cache" / "linearizable"
SETTINGS: Final = {"lockstep.segment.bytes": str(16 << 20)}
WRITERS: Final = 12
TIMEOUTS_S: Final = (1.0, 30.0)
"""Some clients turn to another node while one stands still, others wait for it."""
BETWEEN_FAULTS: Final = (10, 150)
"""Operations of each history that runs, after one fault of a kind is over and before the next."""
PAUSE_S: Final = (0.2, 3.0)
"""How long a node stands still; the others elect another leader meanwhile, or not."""
PAUSES_SELDOMER: Final = 3
TRANSFER_S: Final = 3.0
"""How long a change of leaders may take: to a node that is down it takes longer."""


@dataclass
class Options:
    """What one cluster goes through."""

    histories: int
    operations: int
    seed: int
    nodes: int = 3
    lanes: int = 6
    """Histories at a time: each lasts for several faults."""
    plant: str | None = None


@dataclass
class Outcome:
    """What it came to."""

    verdicts: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    operations: int = 0
    estimates: int = 0
    faults: list[tuple[int, int, int]] = field(default_factory=list)
    """Kills, changes of leaders and pauses, those counted while each history ran."""
    kills: int = 0
    transfers: int = 0
    transfers_in_vain: int = 0
    pauses: int = 0
    slowest_judgement_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        return {
            "histories": sum(self.verdicts.values()),
            "operations": self.operations,
            "verdicts": dict(self.verdicts),
            "outcomes": dict(sorted(self.counts.items())),
            "estimates": self.estimates,
            "kills": self.kills,
            "transfers": self.transfers,
            "transfers_in_vain": self.transfers_in_vain,
            "pauses": self.pauses,
            "histories_with_a_kill": sum(kills > 0 for kills, _, _ in self.faults),
            "histories_without_a_fault": self.faults.count((0, 0, 0)),
            "slowest_judgement_s": round(self.slowest_judgement_s, 2),
            "problems": self.problems,
        }


class Round:
    """Histories on one cluster, some of them side by side, and what happens to the cluster meanwhile."""

    def __init__(self, options: Options, directory: Path) -> None:
        self.options = options
        self.outcome = Outcome()
        self._directory = directory
        program = None
        if options.plant is not None:
            program = [sys.executable, "-m", "tests.campaigns.lock_sabotage", options.plant]
        self._brokers = Brokers("lockstep", options.nodes, SETTINGS, directory, program)
        self._running: set[History] = set()
        self._done = 0
        self._next = 0

    def run(self) -> Outcome:
        """TargetFailed, ToolchainMissing."""
        try:
            self._brokers.start()
            asyncio.run(self._run())
        finally:
            self._brokers.close()
        self.outcome.kills = self._brokers.kills
        return self.outcome

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            faults = [tasks.create_task(each) for each in (self._kills(), self._transfers(), self._pauses())]
            async with asyncio.TaskGroup() as lanes:
                for _ in range(self.options.lanes):
                    lanes.create_task(self._lane())
            for each in faults:
                each.cancel()

    async def _lane(self) -> None:
        clients = [
            Client(self._brokers.bootstrap, client_id=f"c{number}", timeout_s=TIMEOUTS_S[number % 2])
            for number in range(WRITERS)
        ]
        writers = [Writer(number, client) for number, client in enumerate(clients)]
        try:
            while self._next < self.options.histories and not self.outcome.problems:
                self._next += 1
                await self._history(self._next, writers, clients[0])
        finally:
            for client in clients:
                client.close()

    async def _history(self, number: int, writers: Sequence[Writer], client: Client) -> None:
        rng = random.Random(f"{self.options.seed}-{number}")
        name = f"history-{number}"
        history = History(await self._topic(client, name, rng), self.options.operations, rng)
        before = self._faults()
        self._running.add(history)
        await asyncio.gather(*[each.run(history) for each in writers])
        logs = await writers[0].read_all(history)
        self._running.discard(history)
        self._done += len(history.operations)
        kills, transfers, pauses = (now - then for now, then in zip(self._faults(), before, strict=True))
        self.outcome.faults.append((kills, transfers, pauses))
        operations, problems = conditional_history.settle(history.operations, logs)
        unheard = [each for each in operations if each.return_ns is None]
        history.counts["open and stored"] += sum(each.stored is not None for each in unheard)
        path = self._directory / f"{name}.json"
        await asyncio.to_thread(conditional_history.write, path, operations)
        verdict = await asyncio.to_thread(conditional_history.judge, path)
        self._note(history, path, verdict, history.problems or problems)
        await self._forget(client, history.topic)

    def _faults(self) -> tuple[int, int, int]:
        """As in `Outcome.faults`, so far."""
        return self._brokers.kills, self.outcome.transfers, self.outcome.pauses

    def _note(self, history: History, path: Path, verdict: dict[str, Any], problems: Sequence[str]) -> None:
        outcome = self.outcome
        outcome.verdicts[verdict["result"]] += 1
        outcome.counts += history.counts
        outcome.operations += len(history.operations)
        outcome.estimates += verdict["estimates"]
        outcome.slowest_judgement_s = max(outcome.slowest_judgement_s, verdict["seconds"])
        found = [f"{path.stem}: {each}" for each in problems[:5]]
        if verdict["result"] != "Ok":
            found.append(f"{path.stem}: {verdict['result']} {' '.join(verdict.get('stuck', []))}")
        if verdict["estimates"]:  # so few locks are all known exactly
            found.append(f"{path.stem}: {verdict['estimates']} refusals rest on an estimate")
        if found and self.options.plant is None:
            KEPT.mkdir(parents=True, exist_ok=True)
            for each in self._directory.glob(f"{path.stem}.*"):
                shutil.copyfile(each, KEPT / f"{self.options.seed}-{each.name}")
        outcome.problems += found
        for each in self._directory.glob(f"{path.stem}.*"):
            each.unlink()

    async def _topic(self, client: Client, name: str, rng: random.Random) -> TopicMetadata:
        configs = {"lockstep.locks": "true", "lockstep.group": str(rng.randint(1, self.options.nodes))}
        while True:
            try:
                return await client.create_topic(name, partitions=rng.choice([2, 3, 4]), configs=configs)
            except ClientError:  # nobody to ask; or it was made, and the answer is lost
                await asyncio.sleep(0.1)
                name += "-again"

    async def _forget(self, client: Client, topic: TopicMetadata) -> None:
        try:
            await client.delete_topic(topic.name)
        except ClientError:
            self.outcome.counts["topics left"] += 1

    # --- what happens to the cluster ----------------------------------------------------------------------

    async def _kills(self) -> None:
        rng = random.Random(f"{self.options.seed}-kills")
        while True:
            await self._go_on(rng.randint(*BETWEEN_FAULTS))
            try:
                await asyncio.to_thread(self._brokers.kill, rng)
            except TargetFailed as failed:
                self.outcome.problems.append(str(failed))
                for each in self._running:
                    each.left = 0
                return

    async def _transfers(self) -> None:
        rng = random.Random(f"{self.options.seed}-transfers")
        nodes = self.options.nodes
        async with Client(self._brokers.bootstrap, client_id="transfers") as client:
            while nodes > 1:
                await self._go_on(rng.randint(*BETWEEN_FAULTS))
                try:
                    await cluster.transfer(client, rng.randint(1, nodes), rng.randint(1, nodes), TRANSFER_S)
                    self.outcome.transfers += 1
                except ClientError:  # it is down, or nobody could be asked
                    self.outcome.transfers_in_vain += 1

    async def _pauses(self) -> None:
        """A leader that stands still does not know that it was replaced when it wakes up."""
        rng = random.Random(f"{self.options.seed}-pauses")
        while self.options.nodes > 1:
            await self._go_on(PAUSES_SELDOMER * rng.randint(*BETWEEN_FAULTS))
            node = self._brokers.nodes[rng.randint(1, self.options.nodes)]
            if not node.running:
                continue
            paused = node.pid
            os.kill(paused, signal.SIGSTOP)
            self.outcome.pauses += 1
            try:
                await asyncio.sleep(rng.uniform(*PAUSE_S))
            finally:
                if node.running and node.pid == paused:
                    os.kill(paused, signal.SIGCONT)

    async def _go_on(self, operations: int) -> None:
        """Until there were so many more operations of each history that runs."""
        wanted = self._progress() + operations * self.options.lanes
        while True:
            await asyncio.sleep(0.01)
            if self._progress() >= wanted:
                return

    def _progress(self) -> int:
        return self._done + sum(len(each.operations) for each in self._running)


def run_round(options: Options) -> Outcome:
    """In a directory of its own. TargetFailed, ToolchainMissing."""
    with tempfile.TemporaryDirectory(prefix="lockstep-linearizable-") as directory:
        return Round(options, Path(directory)).run()
