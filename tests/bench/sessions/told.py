"""A session of no broker, for tests."""

from __future__ import annotations

from typing import Any

from bench.sessions.jobs import Block
from bench.sessions.session import Session
from bench.settings import FLUSH


class Told(Session):
    """A session of no broker: it holds what it is told to."""

    def __init__(self, stored: int) -> None:
        self.side, self.kind, self.policies = "subject", "lockstep", (FLUSH,)
        self.blocks, self.again = [], []
        self.stored = stored

    def topic(self, policy: str, partitions: int = 1) -> str:
        return "topic"

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        return [self.stored]

    def observe(self, name: str, policy: str, work: Any, *, max_outstanding: int) -> Block:
        block: Block = {"name": name, "policy": policy, "figures": work()}
        self.blocks.append(block)
        return block


def told_block(told: Told) -> Block:
    return told.measure("work", FLUSH, lambda topic: {"total_records": 10}, max_outstanding=1)
