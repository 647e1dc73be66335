"""A seeded driver for the small world: everything that may happen happens, in an order drawn from the seed.

Messages are lost, doubled and overtaken; disks are late; members crash and lose what was not flushed; the
network splits, one way too; members change and leaders hand over. After each step the world's laws are
checked. At the end all faults stop and the group must agree again (liveness).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.settings import RaftSettings
from lockstep.storage.raft.transitions import Role
from lockstep.storage.types import NotLeader
from tests.storage.raft.world import LawBroken, Node, World


class Chaos:
    """One world under one seed."""

    def __init__(self, seed: int, make: Callable[..., Raft] = Raft) -> None:
        rng = self.rng = random.Random(seed)
        self.size = rng.choice((1, 2, 3, 3, 3, 5))
        members = list(range(1, self.size + rng.choice((1, 2, 3))))
        election_timeout_ms = rng.choice((20, 50, 100, 500))  # the shorter, the more elections
        settings = RaftSettings(
            pipeline_depth=rng.choice((1, 1, 2, 4)),
            max_append_bytes=rng.choice((1, 3, 100)),
            heartbeat_ms=election_timeout_ms // rng.choice((2, 5, 10)),
            election_timeout_ms=election_timeout_ms,
        )
        deferred_voters = random.Random(seed)  # of its own: what the others draw stays as it was
        settings = replace(
            settings,
            deferral_ms=min(deferred_voters.choice((0, 1, 8, 40)), settings.heartbeat_ms - 1),
            hedge_ms=deferred_voters.choice((1, 3, 1000)),
            probe_commits=deferred_voters.choice((1, 2, 3, 4)),
        )
        configuration = Configuration(tuple(range(1, self.size + 1)))
        self.world = World(configuration, members, settings, rng.randrange, make)
        drift = settings.clock_drift
        for node in self.world.nodes.values():
            node.clock_rate = rng.choice((1 - drift, 1.0, 1 + drift))
            node.clock_start_ms = rng.choice((0, 1_000_000))
            node.start()
        self.next_value = 0
        self.cut_off: set[tuple[int, int]] = set()
        """(from, to) between which nothing arrives."""
        self.loss = rng.choice((0.0, 0.02, 0.2))
        self.order = rng.choice((0.5, 0.9, 1.0))
        self.doubling = rng.choice((0.0, 0.05, 0.3))
        self.late_disk = rng.choice((0.0, 0.3, 0.8))
        self.steps: list[tuple[Callable[[], None], float]] = [
            (self.deliver, 60),
            (self.flush, rng.choice((15, 40))),
            (self.pass_time, 15),
            (self.propose, rng.choice((5, 20))),
            (self.crash, rng.choice((0.0, 0.5, 3))),
            (self.kill_leader, rng.choice((0.0, 1, 4))),
            (self.restart, 6),
            (self.split, rng.choice((0.0, 0.5, 3))),
            (self.heal, 1),
            (self.checkpoint, rng.choice((0.0, 1))),
            (self.change_members, rng.choice((0.0, 0.5, 2))),
            (self.transfer, rng.choice((0.0, 0.3, 2))),
            (self.lose_connection, rng.choice((0.0, 0.3))),
            (self.campaign, 0.1),
        ]

    def run(self, count: int) -> None:
        """So many steps under faults, then the liveness phase. Raises LawBroken."""
        moves, weights = zip(*self.steps, strict=True)
        for move in self.rng.choices(moves, weights, k=count):
            move()
            self.world.laws.leases(self.world)
        self.on_commit()

    def any_up(self) -> Node | None:
        up = self.world.up()
        return self.rng.choice(up) if up else None

    # --- moves --------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        for _ in range(self.rng.choice((1, 2, 5, 10))):
            if self.world.network:
                self._deliver_one()

    def _deliver_one(self) -> None:
        world, rng = self.world, self.rng
        # Mostly in order, as connections have it; now and then any other.
        at = 0 if rng.random() < self.order else rng.randrange(len(world.network))
        message = world.network[at]
        if rng.random() >= self.doubling:
            del world.network[at]
        if rng.random() >= self.loss and (message.sender, message.to) not in self.cut_off:
            world.deliver(message)

    def flush(self) -> None:
        for node in self.world.up():
            if self.rng.random() >= self.late_disk:
                while node.flush() and self.rng.random() < 0.7:
                    pass

    def pass_time(self) -> None:
        world = self.world
        timeout_ms = world.settings.election_timeout_ms
        world.now_ms += self.rng.choice((1, timeout_ms // 20, timeout_ms // 5, timeout_ms // 2, timeout_ms))
        for node in world.up():
            if self.rng.random() < 0.9:
                node.tick()

    def propose(self) -> None:
        for node in self.world.up():
            if node.raft.is_serving and not node.raft.is_transferring:
                self.next_value += 1
                node.propose(self.next_value)

    def crash(self) -> None:
        node = self.any_up()
        if node is not None:
            node.crash(self.rng.choice((0, 0, 1, 2)), self.rng.random() < 0.5)

    def kill_leader(self) -> None:
        """Where it hurts: entries half replicated, votes just given."""
        for node in self.world.up():
            if node.raft.role is Role.LEADER:
                node.crash(self.rng.choice((0, 1)))
                # Those that were sent something have it or have not.
                sent = [message for message in self.world.network if message.sender == node.member]
                for message in self.rng.sample(sent, self.rng.randint(0, len(sent))):
                    self.world.network.remove(message)

    def restart(self) -> None:
        down = [node for node in self.world.nodes.values() if not node.alive]
        if down:
            self.rng.choice(down).start()

    def split(self) -> None:
        side = [member for member in self.world.nodes if self.rng.random() < 0.4]
        others = [member for member in self.world.nodes if member not in side]
        self.cut_off = {(one, other) for one in side for other in others}
        if self.rng.random() < 0.6:  # both ways
            self.cut_off |= {(other, one) for one, other in self.cut_off}

    def heal(self) -> None:
        self.cut_off = set()

    def checkpoint(self) -> None:
        node = self.any_up()
        if node is not None:
            node.checkpoint()

    def change_members(self) -> None:
        rng = self.rng
        for node in self.world.up():
            kinds = {member: rng.choice("vvvl-") for member in self.world.nodes}
            voters = [member for member in kinds if kinds[member] == "v"]
            learners = [member for member in kinds if kinds[member] == "l"]
            try:
                node.raft.change_members(voters, learners)
            except (NotLeader, ConfigurationRejected):
                continue
            node.drain()

    def transfer(self) -> None:
        for node in self.world.up():
            try:
                node.raft.transfer(self.rng.choice(list(self.world.nodes)), node.clock_ms())
            except (NotLeader, ConfigurationRejected):
                continue
            node.drain()

    def lose_connection(self) -> None:
        node = self.any_up()
        if node is not None:
            node.raft.report_unreachable(self.rng.choice(list(self.world.nodes)))
            node.drain()

    def campaign(self) -> None:
        node = self.any_up()
        if node is not None:
            node.raft.campaign(node.clock_ms())
            node.drain()

    # --- the liveness phase -------------------------------------------------------------------------------

    def on_commit(self) -> None:
        """Without faults a leader comes, its entry is committed by all its members, and they agree."""
        world = self.world
        self.cut_off = set()
        for node in world.nodes.values():
            if not node.alive:
                node.start()
        deadline_ms = world.now_ms + 60_000
        wanted: object = "nothing yet"
        while world.now_ms < deadline_ms:
            world.calm_turn()
            leader = next((node for node in world.up() if node.raft.is_serving), None)
            if leader is None or leader.raft.is_transferring:
                continue
            if not any(entry.value == wanted for entry in leader.log.values()):
                wanted = f"last of {world.now_ms}"
                leader.propose(wanted)
            members = [world.nodes[member] for member in leader.raft.configuration.members]
            if leader.raft.configuration.joint or any(
                node.commit_index < leader.commit_index for node in members
            ):
                continue
            if any(entry.value == wanted for entry in world.laws.committed.values()):
                return
        raise LawBroken("liveness: the group does not agree again")
