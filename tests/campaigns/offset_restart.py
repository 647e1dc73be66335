"""`python -m tests.campaigns.offset_restart --commits 10000000`: a restart after that many offset commits.

A broker in a process of its own commits offsets of 1,000 groups, one by one, and dies as by kill -9 at the
worst moment: nearly as much is to be replayed as can be. Another one is started on what is left, and timed
from exec to the answer to the first OffsetFetch, which must be the last commit's; `cpu_s` is what it needs
of a processor for that, on a busy machine the better figure. Prints JSON; ends with 1 when any restart
takes longer than `--limit` seconds, or says something else. Adds to docs/evidence/offset_restart.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from compat_tests.raw import ConnectionClosed, RawConnection
from compat_tests.targets import LockstepTarget
from lockstep.broker.groups.group_records import CommittedOffset, offset_record
from lockstep.broker.groups.group_store import GroupStore
from lockstep.broker.server import Broker
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.checkpointer import MAX_BATCHES
from tests.campaigns import evidence

LOOPBACK = "127.0.0.1"
GROUPS = 1_000
PARTITIONS = 100
TOPIC = "t"
PER_TURN = 200
"""Commits of one turn of the loop, which share a frame."""
UNDER_WAY = 5_000
WORST = int(0.95 * MAX_BATCHES)
"""Commits after a checkpoint, when the next one is near."""
COMPARE = "g-0"
DEADLINE_S = 120.0


class _Filler:
    """Commits offsets, as fast as they are taken."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self._broker = broker
        self._random = random.Random(seed)
        self._left = self._sent = 0
        self._committed = asyncio.Event()
        self.last: dict[int, int] = {}
        """Of the group that is asked for in the end."""

    def store(self, group_id: str = COMPARE) -> GroupStore:
        return self._broker.assembly.consumer_groups.store(group_id)

    async def commit(self, count: int) -> None:
        """So many commits; returns when they are committed."""
        until = self._sent + count
        while self._sent < until:
            for _ in range(min(PER_TURN, until - self._sent)):
                self._one()
            await asyncio.sleep(0)
            if self._left > UNDER_WAY:
                await self._all_committed()
        await self._all_committed()

    async def _all_committed(self) -> None:
        if self._left:
            self._committed = asyncio.Event()
            await self._committed.wait()

    def _one(self) -> None:
        group_id, index = f"g-{self._random.randrange(GROUPS)}", self._random.randrange(PARTITIONS)
        self._sent += 1
        self._left += 1
        if group_id == COMPARE:
            self.last[index] = self._sent
        store = self.store(group_id)
        topic = self._broker.assembly.cluster.topic(TOPIC)
        assert topic is not None
        committed = CommittedOffset(self._sent, 1, "", store.time_ms(), topic_id=topic.topic_id)
        store.append(group_id, [offset_record(group_id, TOPIC, index, committed)], self._done)

    def _done(self, error: ErrorCode) -> None:
        assert error is ErrorCode.NONE, error
        self._left -= 1
        if not self._left:
            self._committed.set()

    async def until_checkpoint(self) -> None:
        group = self.store().group
        before = group.checkpoint_index
        while group.checkpoint_index == before:
            await self.commit(PER_TURN)


async def fill(data_dir: str, commits: int, seed: int, to_worst: bool) -> None:
    """Prints what the last commits were, and ends the process on the spot."""
    broker = Broker(from_texts({"log.dirs": data_dir, "listeners": f"PLAINTEXT://{LOOPBACK}:0"}))
    await broker.start()
    services = broker.assembly
    await services.consumer_groups.create_topic(broker.assembly.forwarder)
    if services.cluster.topic(TOPIC) is None:
        await services.topics.create(services.topics.plan(TOPIC, PARTITIONS, 1, {}))
    filler = _Filler(broker, seed)
    await filler.commit(commits)
    if to_worst:
        await filler.until_checkpoint()
        await filler.commit(WORST)
    print(json.dumps(filler.last), flush=True)
    os._exit(9)


def restart(target: LockstepTarget, expected: dict[int, int]) -> dict[str, Any]:
    """Start it, ask, and stop it."""
    began = time.monotonic()
    target.start()
    ready_s = time.monotonic() - began
    found: dict[int, int] = {}
    while not found and time.monotonic() - began < DEADLINE_S:
        found = _asked(target)
    seconds = time.monotonic() - began
    used = psutil.Process(target.pid).cpu_times()
    target.kill9()
    right = all(found.get(index) == offset for index, offset in expected.items())
    cpu_s = used.user + used.system
    return {
        "seconds": round(seconds, 2),
        "ready_s": round(ready_s, 2),
        "cpu_s": round(cpu_s, 2),
        "right": right,
    }


def _asked(target: LockstepTarget) -> dict[int, int]:
    asked = [{"group_id": COMPARE, "topics": None}]
    try:
        with RawConnection(LOOPBACK, target.port) as raw:
            (answer,) = raw.call("offset_fetch", 8, groups=asked, require_stable=True)["groups"]
    except (OSError, ConnectionClosed):
        return {}
    if answer["error_code"] or not answer["topics"]:
        time.sleep(0.005)
        return {}
    return {each["partition_index"]: each["committed_offset"] for each in answer["topics"][0]["partitions"]}


def run(commits: int, seed: int, restarts: int, to_worst: bool = True) -> dict[str, Any]:
    """Fill a directory, and start on it again and again."""
    with tempfile.TemporaryDirectory(prefix="lockstep-offsets-") as directory:
        target = LockstepTarget(directory=Path(directory))
        command = [sys.executable, "-m", __spec__.name, "--fill", str(target.data_dir)]
        command += ["--commits", str(commits), "--seed", str(seed), *(() if to_worst else ("--anywhere",))]
        began = time.monotonic()
        filled = subprocess.run(command, cwd=evidence.ROOT, stdout=subprocess.PIPE, check=False)
        fill_s = time.monotonic() - began
        if filled.returncode != 9:
            raise RuntimeError(f"filling ended with {filled.returncode}")
        expected = {int(index): offset for index, offset in json.loads(filled.stdout).items()}
        rounds = [restart(target, expected) for _ in range(restarts)]
    seconds = [each["seconds"] for each in rounds]
    return {
        "commits": commits,
        "seed": seed,
        "fill_s": round(fill_s, 1),
        "restarts": rounds,
        "slowest_s": max(seconds),
        "problems": [f"restart {n}: a wrong offset" for n, each in enumerate(rounds, 1) if not each["right"]],
    }


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.offset_restart", description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000_000)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--limit", type=float, default=3.0, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--anywhere", action="store_true", help="die after the last of them")
    parser.add_argument("--no-evidence", action="store_true")
    parser.add_argument("--fill", metavar="DIRECTORY", help="only fill it, and die")
    arguments = parser.parse_args(words)
    if arguments.fill:
        asyncio.run(fill(arguments.fill, arguments.commits, arguments.seed, not arguments.anywhere))
    figures = run(arguments.commits, arguments.seed, arguments.restarts, not arguments.anywhere)
    if figures["slowest_s"] > arguments.limit:
        figures["problems"].append(f"slower than {arguments.limit} s")
    print(json.dumps(figures, indent=2))
    if not arguments.no_evidence:
        evidence.add_run("offset_restart", figures)
    return 1 if figures["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
