"""How deep should the pipeline be? The same load at depths 1, 2 and 4, with and without loss: virtual time.

`python -m tests.sim.pipeline` prints, per depth and loss, how long a produced batch takes to its
acknowledgement and how many a second are acknowledged. Nothing breaks here but messages; time is virtual, so
the figures are those of network and disk delays alone, the same on every machine. Closed-loop producers,
three members.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Sequence

from tabulate import tabulate

from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.types import NotLeader
from tests.sim.faces import Unanswered, Workload
from tests.sim.node import Node
from tests.sim.options import Options
from tests.sim.world import World

TOPIC = bytes(15) + b"\x07"
DEPTHS = (1, 2, 4)
LOSSES = (0.0, 0.01, 0.05)
RECORD_BYTES = 1000
SECONDS = 4


class Pipelining(Workload):
    """Closed-loop producers to one partition; every acknowledgement is timed."""

    name = "pipelining"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.taken_ms: list[float] = []
        self.number = -1

    async def client(self, number: int) -> None:
        world = self.world
        while world.working:
            leader = world.leader()
            if leader is None:
                await asyncio.sleep(0.02)
                continue
            began = world.now_s
            try:
                await world.ask(leader, self._produce, 10.0)
            except (Unanswered, NotLeader):
                await asyncio.sleep(0.02)
                continue
            self.taken_ms.append((world.now_s - began) * 1000)

    async def _produce(self, node: Node) -> None:
        group = node.group
        assert group is not None
        if self.number < 0:
            self.number = 0
            (opened,) = await group.open_partitions([(TOPIC, 0)])
            self.number = opened.local_id
        if self.number == 0:
            await group.committed()
            return
        builder = BatchBuilder()
        builder.append(timestamp_ms=1, key=None, value=b"x" * RECORD_BYTES)
        batch = bytearray(builder.build())
        group.append(group.partitions[self.number], batch, read_header(batch))
        await group.committed()

    async def settle(self) -> None:
        return


def run(depth: int, loss: float, clients: int, delay_us: int, flush_us: int) -> dict[str, float]:
    """One world: acknowledgements a second, and how long they take."""
    options = Options(
        safety_s=SECONDS,
        clients=clients,
        faults=(),
        fault_every_ms=1_000_000,
        loss=loss,
        delay_us=delay_us,
        flush_us=flush_us,
        segment_bytes=4 << 20,
        pipeline_depth=depth,
        max_append_bytes=1 << 20,
    )
    world = World(1, options, Pipelining, lambda _: [])
    world.run()
    if world.violation is not None:
        raise world.violation
    workload = world.workload
    assert isinstance(workload, Pipelining)
    taken = sorted(workload.taken_ms)
    return {
        "depth": depth,
        "loss": loss,
        "per_second": round(len(taken) / SECONDS),
        "p50_ms": round(statistics.median(taken), 2),
        "p99_ms": round(taken[len(taken) * 99 // 100], 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one row per depth and loss."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.pipeline", description=__doc__)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--delay-us", type=int, default=500, help="one way between two members, on average")
    parser.add_argument("--flush-us", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    rows = [
        run(depth, loss, given.clients, given.delay_us, given.flush_us) for loss in LOSSES for depth in DEPTHS
    ]
    print(json.dumps(rows) if given.json else tabulate(rows, headers="keys"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
