"""Damage to flushed bytes of one node: flipped, zeroed, garbage, a misdirected write.

Only bytes that later flushes spoke of: damage to the very last write cannot be told from a torn one, by
anybody. Only to one node at a time, until its disk is replaced: a majority keeps intact copies. After
healing: what of it is still there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.storage.log.data_log import SealedSegment
from tests.sim import membership

if TYPE_CHECKING:
    from tests.sim.nemesis import Nemesis
    from tests.sim.node import Node
    from tests.sim.world import World

SECTOR = 512
TRIES = 20


def rot(nemesis: Nemesis) -> str:
    """Damage one place of the one node that may be damaged."""
    world, random = nemesis.world, nemesis.random
    node = next((n for n in world.nodes.values() if n.damaged), None)
    if node is None and membership.whole(nemesis):
        node = random.choice(list(world.nodes.values()))
    names = node.disk.names() if node is not None else []
    if node is None or not names:
        return ""
    for _ in range(TRIES):
        name = random.choice(names)
        size = len(node.disk.durable_bytes(name))
        if size == 0:
            continue
        kind = random.choice(("flip", "zero", "garbage", "misdirected"))
        length = 1 if kind == "flip" else random.choice((1, 16, SECTOR, 4096))
        start = random.randrange(size)
        if kind != "flip" and length >= SECTOR:
            start -= start % SECTOR
        end = min(size, start + length)
        if not node.disk.settled(name, start, end):
            continue
        if not _damage(nemesis, node, kind, name, start, end):
            continue
        node.damaged = node.rotten = True
        return f"node {node.node_id}: {kind} {name} bytes {start} to {end}"
    return ""


def unrepaired(world: World) -> bool | None:
    """Whether the log has to go on before a rotten sealed segment can be repaired; None where none is rotten
    and what a damaged node has could be read."""
    rotten = []
    for node in world.nodes.values():
        if not node.damaged:
            continue
        if node.group is None:
            return False
        log = node.group.log
        rotten += [_waits(world, node, s) for s in log.segments() if log.scrub(s.sequence) is not None]
    return any(rotten) if rotten else None


def _waits(world: World, node: Node, segment: SealedSegment) -> bool:
    """Whether this one must wait: for checkpoints to move on, both of them where all others have freed what
    the segment begins with, so that it has to do without (docs/decisions/0014)."""
    assert node.group is not None
    logs = [n.group.log for n in world.nodes.values() if n.group is not None and n is not node]
    whole = any(log.oldest_index <= segment.first_index for log in logs)
    return not node.group.log.rewritable(segment.sequence, later=not whole)


def _damage(nemesis: Nemesis, node: Node, kind: str, name: str, start: int, end: int) -> bool:
    """Do it; False where nothing would change."""
    random = nemesis.random
    former = bytes(node.disk.durable_bytes(name)[start:end])
    if kind == "flip":
        data = bytes([former[0] ^ 1 << random.randrange(8)])
    elif kind == "zero":
        data = bytes(len(former))
    elif kind == "garbage":
        data = random.randbytes(len(former))
    else:  # what belongs elsewhere
        other = random.choice(node.disk.names())
        source = node.disk.durable_bytes(other)
        if not source:
            return False
        at = random.randrange(len(source)) // SECTOR * SECTOR
        data = bytes(source[at : at + len(former)]).ljust(len(former), b"\0")
    if data == former:
        return False
    node.disk.damage(name, start, data)
    return True
