"""A small world of Raft cores: members with disks of their own, and messages on the way between them.

Owns what a shell would do (write and truncate in order, attach entries to requests, ship checkpoints) with
every step in the hands of whoever drives it, so that disks and network can be as late as one likes. Each step
is checked by `Laws`. It has no clock of its own and draws nothing: the driver says what happens next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from lockstep.storage.raft.configuration import Configuration, ConfigurationStack
from lockstep.storage.raft.messages import Append, Install, Message
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.ready import Ready
from lockstep.storage.raft.settings import RaftSettings
from lockstep.storage.raft.term_index import TermIndex
from lockstep.storage.raft.transitions import Role
from lockstep.storage.types import HardState


class Entry:
    """One entry with its content: a value that is unique in the world, or a configuration, or nothing."""

    __slots__ = ("configuration", "index", "prev_term", "term", "value")

    def __init__(self, index: int, term: int, prev_term: int, value: object) -> None:
        self.index = index
        self.term = term
        self.prev_term = prev_term
        self.value = value
        self.configuration = value if isinstance(value, Configuration) else None


class LawBroken(AssertionError):
    """One of Raft's promises does not hold in this world."""


class Laws:
    """Raft's five promises (paper, figure 3), durability of commits, the lease, and what may be concluded
    from answers; over all of history."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.entries: dict[tuple[int, int], Entry] = {}
        self.committed: dict[int, Entry] = {}
        self.deposed_ms: dict[tuple[int, int], int] = {}
        """(member, its term) -> when somebody else was seen to lead a later one, by its own clock."""

    def written(self, entry: Entry) -> None:
        """Log matching: index and term name one entry, and what precedes it."""
        known = self.entries.setdefault((entry.index, entry.term), entry)
        if (known.value, known.prev_term) != (entry.value, entry.prev_term):
            raise LawBroken(f"log matching: entry {entry.index} of term {entry.term} exists twice")

    def elected(self, node: Node) -> None:
        """Election safety, and leader completeness."""
        term = node.raft.term
        if self.leaders.setdefault(term, node.member) != node.member:
            raise LawBroken(f"election safety: {self.leaders[term]} and {node.member} lead term {term}")
        for index, entry in self.committed.items():
            if index > node.base_index and (index not in node.log or node.log[index].term != entry.term):
                raise LawBroken(f"leader completeness: {node.member} lacks entry {index} in term {term}")

    def applied(self, node: Node, entry: Entry) -> None:
        """State machine safety."""
        known = self.committed.setdefault(entry.index, entry)
        if known.term != entry.term or known.value != entry.value:
            raise LawBroken(f"state machine safety: {node.member} applies another entry {entry.index}")

    def durable(self, world: World, node: Node, index: int) -> None:
        """What a leader commits, a majority of each voter set has on its disk."""
        entry = node.log[index]
        for voters in node.raft.configuration.voter_sets():
            holders = sum(world.nodes[voter].on_disk(index, entry.term) for voter in voters)
            if 2 * holders <= len(voters):
                raise LawBroken(f"durability: entry {index} is on {holders} of {len(voters)} disks")

    def leases(self, world: World) -> None:
        """Nobody leads a later term while a leader has its lease, and then no majority answers it."""
        leader_state = [node for node in world.up() if node.raft.role is Role.LEADER]
        newest = max((node.raft.term for node in leader_state), default=0)
        for node in leader_state:
            term = node.raft.term
            if term >= newest:
                continue
            if node.raft.has_lease(node.clock_ms()):
                raise LawBroken(f"lease: {node.member} has one in term {term}, {newest} has a leader")
            since_ms = self.deposed_ms.setdefault((node.member, term), node.clock_ms())
            if node.raft.contact_ms(node.clock_ms()) > since_ms:
                raise LawBroken(f"contact: a majority answers {node.member}, {newest} has had a leader")


class Node:
    """One member: its core, its memory, its disk, and the writes between them."""

    def __init__(self, world: World, member: int, configuration: Configuration) -> None:
        self.world = world
        self.member = member
        # On disk.
        self.flushed_hard_state = HardState()
        self.disk: dict[int, Entry] = {}
        self.base_index = self.base_term = 0
        self.base_configuration = configuration
        # In memory.
        self.alive = False
        self.raft: Raft
        self.log: dict[int, Entry] = {}
        self.writes: deque[tuple[int | None, list[Entry], int]] = deque()
        """In order: (truncate after, entries to write, cuts as they were)."""
        self.hard_state: HardState | None = None
        """Handed out, not flushed."""
        self.commit_index = self.applied_index = 0
        self.cut_after = (0, 0)
        """The count of cuts, and where the last one was."""
        self.incoming: Message | None = None
        # Its clock is off by a rate and begins anywhere.
        self.clock_rate = 1.0
        self.clock_start_ms = 0

    def clock_ms(self) -> int:
        return self.clock_start_ms + int(self.world.now_ms * self.clock_rate)

    def start(self) -> None:
        """From what is on the disk."""
        terms = TermIndex(self.base_index, self.base_term)
        configurations = ConfigurationStack(self.base_configuration, self.base_index)
        self.log = dict(self.disk)
        for index in range(self.base_index + 1, self.base_index + 1 + len(self.disk)):
            entry = self.log[index]
            terms.append(index, entry.term, 1)
            if entry.configuration is not None:
                configurations.append(index, entry.configuration)
        self.writes.clear()
        self.hard_state = None
        self.commit_index = self.applied_index = self.base_index
        world = self.world
        self.raft = world.make(
            self.member,
            configurations,
            self.flushed_hard_state,
            terms,
            self.base_index,
            world.settings,
            self.clock_ms(),
            world.draw_of(self.member),
        )
        self.alive = True

    def crash(self, kept_entries: int = 0, keep_hard_state: bool = False) -> None:
        """Stop; the write under way leaves its first entries on the disk, perhaps its hard state."""
        if keep_hard_state and self.hard_state is not None:
            self.flushed_hard_state = self.hard_state
        elif kept_entries and self.writes and self.hard_state is None:
            after, entries, _ = self.writes[0]
            self._to_disk(after, entries[:kept_entries])
        self.alive = False

    def on_disk(self, index: int, term: int) -> bool:
        """Whether the entry is here, or under the checkpoint."""
        return index <= self.base_index or (index in self.disk and self.disk[index].term == term)

    def _to_disk(self, after: int | None, entries: Sequence[Entry]) -> None:
        if after is not None:
            self.disk = {index: entry for index, entry in self.disk.items() if index <= after}
        for entry in entries:
            self.disk[entry.index] = entry

    # --- what a shell does --------------------------------------------------------------------------------

    def drain(self) -> Ready:
        """Do what the core wants; disk writes are only queued."""
        ready = self.raft.ready()
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        if ready.no_op_index is not None:
            self.world.laws.elected(self)
            self.write(ready.no_op_index, None)
        if ready.configuration is not None:
            self.write(*ready.configuration)
        if ready.accepted is not None:
            self._accept(ready)
        for message in ready.messages:
            if isinstance(message, Append):
                entries: list[Any] = [
                    self.log[index] for index in range(message.prev_index + 1, message.last_index + 1)
                ]
                message.frames = entries
                message.sizes = [1] * len(entries)
            self.world.send(message)
        for peer in ready.installs:
            self._ship(peer)
        for chunk in ready.chunks:
            self._store(chunk)
        self._apply()
        return ready

    def write(self, index: int, value: object) -> None:
        """A leader's own entry."""
        prev_term = self.raft.terms.term_at(index - 1)
        assert prev_term is not None
        self._write(None, [Entry(index, self.raft.term, prev_term, value)])

    def _accept(self, ready: Ready) -> None:
        assert isinstance(self.incoming, Append) and ready.accepted is not None
        first, last = ready.accepted
        skipped = first - self.incoming.prev_index - 1
        entries: list[Any] = list(self.incoming.frames)[skipped:]
        assert [entry.index for entry in entries] == list(range(first, last + 1))
        after = ready.truncate_after
        if after is not None:
            self.cut_after = (self.raft.truncation_count, after)
            self.log = {index: entry for index, entry in self.log.items() if index <= after}
        self._write(after, entries)

    def _write(self, after: int | None, entries: list[Entry]) -> None:
        for entry in entries:
            assert entry.index == self.base_index + 1 or entry.index - 1 in self.log
            self.world.laws.written(entry)
            self.log[entry.index] = entry
        if after is None and self.writes and self.writes[-1][2] == self.raft.truncation_count:
            self.writes[-1][1].extend(entries)
        else:
            self.writes.append((after, entries, self.raft.truncation_count))

    def _ship(self, peer: int) -> None:
        payload = (self.base_configuration, dict(self.world.laws.committed))
        raft, now_ms = self.raft, self.clock_ms()
        for chunk in (0, 1):
            self.world.send(
                Install(
                    self.member,
                    peer,
                    raft.term,
                    self.base_index,
                    self.base_term,
                    chunk,
                    chunk == 1,
                    now_ms,
                    payload,
                )
            )

    def _store(self, chunk: Install) -> None:
        raft = self.raft
        raft.chunk_stored(chunk)
        if not chunk.done or self.writes or not raft.needs_install(chunk.index, chunk.last_term):
            return
        payload: Any = chunk.payload
        self.base_index, self.base_term, self.base_configuration = chunk.index, chunk.last_term, payload[0]
        self.disk, self.log = {}, {}
        self.commit_index = self.applied_index = chunk.index
        raft.on_installed(chunk.index, chunk.last_term, self.base_configuration, self.clock_ms())
        self.drain()

    def _apply(self) -> None:
        raft, laws = self.raft, self.world.laws
        if raft.commit_index < self.commit_index:
            raise LawBroken(f"commit index of {self.member} went back to {raft.commit_index}")
        if raft.role is Role.LEADER and raft.commit_index > self.commit_index:
            laws.durable(self.world, self, raft.commit_index)
        self.commit_index = raft.commit_index
        while self.applied_index < self.commit_index:
            self.applied_index += 1
            laws.applied(self, self.log[self.applied_index])

    # --- what the driver lets happen ----------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        self.incoming = message
        self.raft.step(message, self.clock_ms())
        self.drain()

    def tick(self) -> None:
        """Nothing, unless the core's deadline has passed."""
        if self.clock_ms() >= self.raft.deadline_ms:
            self.raft.tick(self.clock_ms())
            self.drain()

    def propose(self, value: object) -> int:
        index = self.raft.propose(1)
        self.write(index, value)
        self.drain()
        return index

    def flush(self) -> bool:
        """The oldest write is done: a hard state first, else entries. False where there is none."""
        if self.hard_state is not None:
            self.flushed_hard_state, self.hard_state = self.hard_state, None
            self.raft.on_hard_state_persisted(self.flushed_hard_state)
        elif self.writes:
            after, entries, truncation_count = self.writes.popleft()
            self._to_disk(after, entries)
            self.raft.on_persisted(entries[-1].index, entries[-1].term, truncation_count)
        else:
            return False
        self.drain()
        return True

    def checkpoint(self) -> None:
        """Cut at what is applied and flushed."""
        index = min(self.applied_index, max(self.disk, default=self.base_index))
        if self.writes or index <= self.base_index:
            return
        self.base_term = self.disk[index].term
        self.base_configuration = self.raft.configurations.at(index)
        self.base_index = index
        self.disk = {each: entry for each, entry in self.disk.items() if each > index}
        self.log = {each: entry for each, entry in self.log.items() if each > index}
        self.raft.on_checkpoint(index)


class World:
    """Members, and the messages on their way."""

    def __init__(
        self,
        configuration: Configuration,
        members: Sequence[int],
        settings: RaftSettings,
        draw: Callable[[int], int],
        make: Callable[..., Raft] = Raft,
    ) -> None:
        self.settings = settings
        self.draw = draw
        self.make = make
        self.now_ms = 0
        self.laws = Laws()
        self.network: list[Message] = []
        self.nodes: dict[int, Node] = {}
        for member in members:
            first = configuration if member in configuration.members else Configuration(())
            self.nodes[member] = Node(self, member, first)
        for node in self.nodes.values():
            node.start()

    def up(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.alive]

    def draw_of(self, _member: int) -> Callable[[int], int]:
        return self.draw

    def send(self, message: Message) -> None:
        self.network.append(message)

    def deliver(self, message: Message) -> None:
        """The message arrives, if there is anybody; it must have been taken off the network."""
        node = self.nodes[message.to]
        if node.alive:
            node.receive(message)

    def calm_turn(self) -> None:
        """Ten milliseconds in which disks and network keep up with everything."""
        self.now_ms += 10
        for node in self.up():
            node.tick()
        for _ in range(4):
            for node in self.up():
                while node.flush():
                    pass
            arrived, self.network = self.network, []
            for message in arrived:
                self.deliver(message)
        self.laws.leases(self)
