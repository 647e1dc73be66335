"""Which fault when: crashes, partitions, disk faults, clocks, leadership, membership; then the healing.

One actor draws a kind and does it, again and again, until the safety phase ends; what lasts ends by itself. A
kind that does not apply just now (no leader to isolate) is not counted. Damage that the group may not
survive twice (a replaced disk, rot) is done to a minority only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tests.sim import membership, rot
from tests.sim.node import Node, State

if TYPE_CHECKING:
    from tests.sim.world import World

RESTART_MEAN_S = 1.5
RESTART_MOST_S = 12.0
LONGEST_FAULT_S = 8.0


class Nemesis:
    """See the module. `counts` says how often each kind was done."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random("nemesis")
        self.counts: Counter[str] = Counter()
        self.healed = False

    # -- the hunt ---------------------------------------------------------------------------------------

    async def hunt(self) -> None:
        """Fault after fault."""
        options = self.world.options
        kinds = [kind for kind in options.faults if kind in KINDS and self._survivable(kind)]
        weights = [KINDS[kind][1] for kind in kinds]
        while kinds:
            await asyncio.sleep(self.random.expovariate(1000 / options.fault_every_ms))
            (kind,) = self.random.choices(kinds, weights)
            detail = KINDS[kind][0](self)
            if isinstance(detail, Awaitable):
                detail = await detail
            if detail:
                self.counts[kind] += 1
                self.world.note("fault", f"{kind}: {detail}")

    def _survivable(self, kind: str) -> bool:
        options = self.world.options
        if kind == "rot":
            return options.rot and options.nodes >= 3
        if kind in ("transfer", "remove voter", "add learner", "replace disk", "partition", "isolate leader"):
            return options.nodes >= 3
        return True

    def heal(self) -> None:
        """No more faults. What is down starts again, damage is looked for; pauses end by themselves."""
        self.healed = True
        self.world.spawn(self._administer(), "administrator")
        self.world.network.heal()
        for node in self.world.nodes.values():
            node.faults.heal()
            if node.state is State.REFUSED:
                node.replace_disk()
            if node.damaged and node.state is not State.DOWN:
                node.crash("kill")  # a start reads what lies above the checkpoint, scrubs what lies below
            if node.state is State.DOWN:
                self._restart(node, 0.1)

    async def _administer(self) -> None:
        """Members that come back as others are taken in."""
        while self.world.options.nodes > 1:
            await membership.restored(self)
            await asyncio.sleep(0.5)

    def crashed(self, node: Node) -> None:
        """The node went down: start it again after a while, and where it refused its disk, see to that."""
        if node.state is State.REFUSED:
            if node.salvage or self.healed:  # not even the rest of its disk will do
                node.replace_disk()
            else:
                node.salvage = True
                node.state = State.DOWN
        if node.state is State.DOWN:
            wait_s = 0.2 if self.healed else min(RESTART_MOST_S, self.random.expovariate(1 / RESTART_MEAN_S))
            self._restart(node, wait_s)

    def _restart(self, node: Node, wait_s: float) -> None:
        self.world.push(self.world.now_us + int(wait_s * 1e6), node.start, node.life)

    # -- choosing ---------------------------------------------------------------------------------------

    def running(self) -> Node | None:
        """Some node that runs; the leader rather often."""
        leader = self.world.leader()
        if leader is not None and self.random.random() < 0.3:
            return leader
        nodes = [n for n in self.world.nodes.values() if n.state in (State.OPEN, State.STARTING)]
        return self.random.choice(nodes) if nodes else None

    def duration_us(self) -> int:
        """Mostly around a second, at most eight."""
        return int(min(LONGEST_FAULT_S, self.random.expovariate(0.7)) * 1e6) + 50_000

    def later(self, wait_us: int, what: Callable[[], object]) -> None:
        """Do something in a while, unless all is healed by then."""
        self.world.push(self.world.now_us + wait_us, lambda _: None if self.healed else what(), None)


def _crash(how: str) -> Callable[[Nemesis], str]:
    def crash(nemesis: Nemesis) -> str:
        node = nemesis.running()
        if node is None:
            return ""
        victims = [node]
        if nemesis.random.random() < 0.2:
            others = [n for n in nemesis.world.running() if n is not node]
            victims += nemesis.random.sample(others, min(len(others), (nemesis.world.options.nodes - 1) // 2))
        return _crash_all(victims, how)

    return crash


def _crash_everywhere(how: str) -> Callable[[Nemesis], str]:
    def crash(nemesis: Nemesis) -> str:
        return _crash_all(nemesis.world.running(), how)

    return crash


def _crash_all(nodes: list[Node], how: str) -> str:
    for node in nodes:
        node.crash(how)
    return "nodes " + " ".join(str(node.node_id) for node in nodes) if nodes else ""


def _cut(nemesis: Nemesis) -> str:
    node = nemesis.running()
    if node is None:
        return ""
    node.cut_how = nemesis.random.choice(("kill", "power loss", "power loss"))
    node.faults.armed_cut = nemesis.random.choice((1, 2, 3, 5, 8, 13, 30, 80))
    return f"node {node.node_id}: {node.cut_how} before change {node.faults.armed_cut} of its disk"


def _pause(nemesis: Nemesis) -> str:
    node = nemesis.running()
    if node is None:
        return ""
    duration_us = nemesis.duration_us()
    node.pause(nemesis.world.now_us + duration_us)
    return f"node {node.node_id} for {duration_us} us"


def _isolate_leader(nemesis: Nemesis) -> str:
    leader = nemesis.world.leader()
    return _cut_off(nemesis, [leader], both=True) if leader is not None else ""


def _partition(nemesis: Nemesis) -> str:
    nodes = list(nemesis.world.nodes.values())
    return _cut_off(
        nemesis, nemesis.random.sample(nodes, nemesis.random.randint(1, len(nodes) // 2)), both=True
    )


def _one_way(nemesis: Nemesis) -> str:
    node = nemesis.running()
    return _cut_off(nemesis, [node], both=False) if node is not None else ""


def _cut_off(nemesis: Nemesis, side: list[Node], both: bool) -> str:
    """Nothing passes between `side` and the others; with `both` False one direction still works."""
    network = nemesis.world.network
    ids = [node.node_id for node in side]
    others = [number for number in nemesis.world.nodes if number not in ids]
    if not others:
        return ""
    inwards = both or nemesis.random.random() < 0.5
    links = [network.link(other, number) for number in ids for other in others] if inwards else []
    if both or not inwards:
        links += [network.link(number, other) for number in ids for other in others]
    for link in links:
        link.blocked += 1

    def mend() -> None:
        for link in links:
            link.blocked = max(0, link.blocked - 1)

    duration_us = nemesis.duration_us()
    nemesis.later(duration_us, mend)
    which = "both ways" if both else ("inwards" if inwards else "outwards")
    return f"{ids} from {others} {which} for {duration_us} us"


def _clog(nemesis: Nemesis) -> str:
    numbers = list(nemesis.world.nodes)
    source, target = nemesis.random.choice(numbers), nemesis.random.choice(numbers)
    if source == target:
        return ""
    until_us = nemesis.world.now_us + nemesis.duration_us()
    nemesis.world.network.link(source, target).clogged_until_us = until_us
    return f"{source} to {target} until {until_us} us"


def _swizzle(nemesis: Nemesis) -> str:
    """Clog some nodes one after the other, and let them go in another order."""
    numbers = nemesis.random.sample(
        list(nemesis.world.nodes), nemesis.random.randint(1, len(nemesis.world.nodes))
    )
    if len(nemesis.world.nodes) < 2:
        return ""
    network = nemesis.world.network
    ends = list(range(len(numbers)))
    nemesis.random.shuffle(ends)
    for place, number in enumerate(numbers):
        until_us = nemesis.world.now_us + 200_000 * (len(numbers) + 1 + ends[place])

        def clog(number: int = number, until_us: int = until_us) -> None:
            for other in nemesis.world.nodes:
                for link in (network.link(number, other), network.link(other, number)):
                    link.clogged_until_us = max(link.clogged_until_us, until_us)

        nemesis.later(200_000 * place + 1, clog)
    return f"{numbers}, freed in order {ends}"


def _stall(nemesis: Nemesis) -> str:
    node = nemesis.running()
    if node is None:
        return ""
    node.faults.stall_us = nemesis.random.choice((50_000, 300_000, 1_000_000, 4_000_000))
    return f"node {node.node_id}: the next flush takes {node.faults.stall_us} us more"


def _slow(nemesis: Nemesis) -> str:
    node = nemesis.running()
    if node is None:
        return ""
    node.faults.slowness = nemesis.random.choice((4, 10, 30))
    nemesis.later(nemesis.duration_us(), lambda: setattr(node.faults, "slowness", 1))
    return f"node {node.node_id}: {node.faults.slowness} times as slow"


def _failing(*operations: str) -> Callable[[Nemesis], str]:
    def fail(nemesis: Nemesis) -> str:
        node = nemesis.running()
        if node is None:
            return ""
        operation = nemesis.random.choice(operations)
        node.faults.failing[operation] = 1
        return f"node {node.node_id}: the next {operation} fails"

    return fail


def _failed_reads(nemesis: Nemesis) -> str:
    node = nemesis.running()
    if node is None:
        return ""
    node.faults.read_errors = nemesis.random.choice((0.01, 0.1))
    nemesis.later(nemesis.duration_us(), lambda: setattr(node.faults, "read_errors", 0.0))
    return f"node {node.node_id}: {node.faults.read_errors:.0%} of reads"


def _short_writes(nemesis: Nemesis) -> str:
    node = nemesis.running()
    if node is None:
        return ""
    node.faults.short_writes = 0.3
    nemesis.later(nemesis.duration_us(), lambda: setattr(node.faults, "short_writes", 0.0))
    return f"node {node.node_id}"


def _full(nemesis: Nemesis) -> str:
    node = nemesis.running()
    if node is None:
        return ""
    room = nemesis.random.choice((0, 4096, 100_000))
    node.faults.free_bytes = node.disk.used_bytes + room
    nemesis.later(nemesis.duration_us(), lambda: node.faults.heal_space())
    return f"node {node.node_id}: {room} bytes are left"


def _clock(nemesis: Nemesis) -> str:
    node = nemesis.random.choice(list(nemesis.world.nodes.values()))
    by_ms = nemesis.random.choice((-3_600_000, -5000, -200, 200, 5000, 3_600_000))
    node.jump_clock(by_ms)
    return f"node {node.node_id} by {by_ms} ms"


def _housekeeping(nemesis: Nemesis) -> str:
    node = nemesis.running()
    if node is None or node.group is None:
        return ""
    node.loop.call_soon(node.keep)
    return f"node {node.node_id}"


KINDS: dict[str, tuple[Callable[[Nemesis], str | Awaitable[str]], float]] = {
    "kill": (_crash("kill"), 2.0),
    "power loss": (_crash("power loss"), 2.0),
    "cut mid-write": (_cut, 3.0),
    "kill all": (_crash_everywhere("kill"), 0.3),
    "power loss all": (_crash_everywhere("power loss"), 0.5),
    "pause": (_pause, 1.5),
    "isolate leader": (_isolate_leader, 1.5),
    "partition": (_partition, 1.0),
    "one-way partition": (_one_way, 1.0),
    "clog": (_clog, 1.0),
    "swizzle": (_swizzle, 0.5),
    "stalled flush": (_stall, 1.0),
    "slow disk": (_slow, 1.0),
    "failed write": (_failing("write", "allocate", "create", "rename", "unlink"), 0.7),
    "failed flush": (_failing("flush", "flush", "flush_dir"), 0.7),
    "failed reads": (_failed_reads, 0.7),
    "short writes": (_short_writes, 0.7),
    "full disk": (_full, 0.7),
    "clock jump": (_clock, 0.7),
    "transfer": (membership.transfer, 1.5),
    "remove voter": (membership.remove_voter, 1.0),
    "add learner": (membership.add_learner, 1.0),
    "replace disk": (membership.replace_disk, 1.0),
    "housekeeping": (_housekeeping, 1.0),
    "rot": (rot.rot, 3.0),
}
"""Kind of fault to what does it (its words, or "" where it did not apply) and how often beside the others."""
