"""A group of several members in one process, on real directories: messages are handed over by the event loop.

For tests of what real disks and real time need. Everything else about replication is the simulator's.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.group_options import node_of
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.raft.messages import Append, Message
from lockstep.storage.raft.settings import RaftSettings
from lockstep.storage.types import StateMachine

SMALL = LogOptions(segment_bytes=1 << 20, tail_cache_bytes=64 << 10)
QUICK = RaftSettings(heartbeat_ms=20, election_timeout_ms=150, append_timeout_ms=60)


@dataclass
class Cluster:
    """Members by node id; `lost` says which messages do not arrive."""

    directory: Path
    voters: tuple[int, ...] = (1, 2, 3)
    log: LogOptions = SMALL
    logs: Mapping[int, LogOptions] = field(default_factory=dict)
    """Of nodes that were told otherwise."""
    salvage: bool = False
    kept_entries: int = 8
    groups: dict[int, LogGroup] = field(default_factory=dict)
    fatal: list[BaseException] = field(default_factory=list)
    lost: Callable[[int, int, Message], bool] = lambda sender, to, message: False
    machines: Callable[[int], Mapping[bytes, tuple[str, StateMachine]]] = lambda node: {}
    """What a node's committed batches are replayed into."""
    monotonic: Callable[[], float] = time.monotonic
    """The monotonic clock of all."""

    async def start(self, *nodes: int, voters: tuple[int, ...] | None = None, incarnation: int = 0) -> None:
        """Open these nodes (all voters where none is named); new ones are in this life of theirs."""
        for node in nodes or self.voters:
            options = GroupOptions(
                1,
                node,
                self.logs.get(node, self.log),
                voters=self.voters if voters is None else voters,
                incarnation=incarnation,
                raft=QUICK,
                kept_entries=self.kept_entries,
                salvage=self.salvage,
                background=False,
            )
            self.groups[node] = await LogGroup.open(
                self.directory / str(node),
                options,
                clock_ms=lambda: 1_700_000_000_000,
                on_fatal=self.fatal.append,
                commit_machines=self.machines(node),
                send=lambda to, message, node=node: self._send(node, to, message),  # type: ignore[misc]
                monotonic=self.monotonic,
            )

    def _send(self, sender: int, to: int, message: Message) -> None:
        if self.lost(sender, to, message):
            return
        message = copy.copy(message)
        if isinstance(message, Append):
            message.frames = [b"".join(message.frames)]
        group = self.groups.get(node_of(to))
        if group is not None:
            asyncio.get_running_loop().call_soon(group.receive, message)

    def __str__(self) -> str:
        return "; ".join(
            f"{node}: {g.raft.role.value} of term {g.term}, log to {g.log.last_index}, core to "
            f"{g.raft.last_index}, committed {g.commit_index}, applied {g.applied_index}"
            for node, g in self.groups.items()
        )

    async def leader(self, *among: int) -> LogGroup:
        """The member that leads and takes appends, of these nodes or of all."""
        for _ in range(500):
            for node in among or tuple(self.groups):
                if self.groups[node].is_leader:
                    return self.groups[node]
            assert not self.fatal, self.fatal
            await asyncio.sleep(0.01)
        raise AssertionError("no leader within five seconds")

    async def until(self, what: Callable[[], bool]) -> None:
        """Wait for it, at most five seconds."""
        for _ in range(500):
            assert not self.fatal, self.fatal
            if what():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"not within five seconds: {self}")

    async def agreed(self) -> None:
        """Wait until every member has applied the same log to its end."""
        await self.until(lambda: len({(g.applied_index, g.log.chain) for g in self.groups.values()}) == 1)

    async def stop(self, *nodes: int) -> None:
        """Close these nodes, or all."""
        for node in nodes or tuple(self.groups):
            await self.groups.pop(node).close()


def batch(*values: bytes) -> bytearray:
    """One record batch."""
    builder = BatchBuilder()
    for value in values:
        builder.append(timestamp_ms=5, key=None, value=value)
    return bytearray(builder.build())


def append(group: LogGroup, partition: PartitionLog, *values: bytes) -> int:
    """Append one batch; its base offset."""
    data = batch(*values)
    return group.append(partition, data, read_header(data))
