"""What must hold: each target has stored exactly its part of the log, in order, once.

Owns: what was committed, as the group's history has it, and so what each target must get; and the rules. A
target refuses what is doubled or does not follow, so a player's mistake would be hidden behind that:
therefore what arrives on a current stream is judged beside the target's own rule.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from lockstep.player.core.messages import Batch
from lockstep.player.core.player import Player
from lockstep.player.core.target import LinkState, Target
from lockstep.player.core.transitions import QueueState
from tests.sim.checks import history
from tests.sim.player.log import Log
from tests.sim.player.targets import Store, Terms

if TYPE_CHECKING:
    from tests.sim.world import World


class Rules:
    """See the module."""

    def __init__(self, world: World, kind: type[Log]) -> None:
        self.world = world
        self._kind = kind
        self.last_position = -1
        """Of the newest committed record."""
        self.first_position = kind.first_position
        """Retention: nothing below it can be read."""
        self._positions: dict[str, list[int]] = {}
        self._parts: dict[str, list[tuple[int, object]]] = {}
        self._last_acks: dict[tuple[int, str, int], int] = {}
        self._history = history.History.of(world)
        self._history.listeners.append(self._committed)

    def _committed(self, entry: history.Entry) -> None:
        for each in self._kind.committed(entry, self._history.topic_ids):
            for name, part in self._kind.route(each):
                self._positions.setdefault(name, []).append(part.position)
                self._parts.setdefault(name, []).append((part.position, part.payload))
            self.last_position = each.position

    def parts(self, name: str, after: int, through: int) -> list[tuple[int, object]]:
        """What a target must get of the positions above `after`, up to `through`."""
        positions = self._positions.get(name, [])
        return self._parts.get(name, [])[bisect_right(positions, after) : bisect_right(positions, through)]

    # --- at a target --------------------------------------------------------------------------------------

    def receives(self, store: Store, terms: Terms, current: Terms, before: int, batch: Batch) -> None:
        """A target has taken a batch; everything before it was received up to `before`."""
        if terms != current:
            text = f"{store.name} takes a batch of stream {terms}, the newest is {current}"
            self.world.violate("nothing is taken from an older stream", text)
        self._is_next(store, before, batch)

    def refuses(self, store: Store, terms: Terms, current: Terms, before: int, batch: Batch) -> None:
        """It has refused one: rightly so, where another stream was greeted."""
        if terms == current:
            self._is_next(store, before, batch)
            text = f"{store.name} refuses {batch.last_position} after {before}"
            self.world.violate("a target takes what its stream brings", text)

    def _is_next(self, store: Store, before: int, batch: Batch) -> None:
        positions = [part.position for part in batch.parts]
        sent = [(part.position, part.payload) for part in batch.parts if not part.is_dummy]
        due = self.parts(store.name, before, batch.last_position)
        ascend = all(a < b for a, b in zip([before, *positions], positions, strict=False))
        if not ascend or sent != due or batch.previous_position != before:
            text = f"{store.name} at {before} gets {positions} after {batch.previous_position}, due are {due}"
            self.world.violate("each stream brings what is due, in order, once", text)

    def answers(self, store: Store, position: int) -> None:
        """The answer to a Hello."""
        if position < store.acknowledged:
            text = f"{store.name} is at {position}, it has acknowledged {store.acknowledged}"
            self.world.violate("what is acknowledged is stored", text)

    def stores(self, store: Store, before: int) -> None:
        """A transaction was committed, which found the mark at `before`."""
        mark = store.position
        count = len(store.applied) - bisect_left(store.applied, before + 1, key=lambda each: each[0])
        applied = store.applied[-count:] if count else []
        due = self.parts(store.name, before, mark)
        if mark < before or applied != due:
            text = f"{store.name} from {before} to {mark}: applied {applied}, due {due}"
            self.world.violate("each part is applied in order, once", text)

    def holds(self, store: Store) -> None:
        """All of it, from its first to its mark."""
        if store.applied != self.parts(store.name, store.first_position - 1, store.position):
            self.world.violate("each part is applied in order, once", f"{store.name}, looked at as a whole")

    # --- at a player --------------------------------------------------------------------------------------

    def stepped(self, core: Player, stores: dict[str, Store], run_entries: int) -> None:
        """The core has taken a step."""
        for target in core.targets.values():
            if target.link is not LinkState.STOPPED:
                self._target_holds(core, target, stores[target.name], run_entries)

    def _target_holds(self, core: Player, target: Target, store: Store, run_entries: int) -> None:
        queue, settings = target.queue, core.settings
        kept = len(queue.normal) + len(queue.catchup) + len(queue.popped)
        sizes = (
            sum(part.size_bytes for part in queue.normal.parts) == queue.normal.size_bytes,
            sum(part.size_bytes for part in queue.catchup.parts) == queue.catchup.size_bytes,
            sum(len(parts) for parts in queue.popped) == queue.popped_entries,
        )
        broken = ""
        if queue.state is QueueState.SUSPENDED and kept:
            broken = f"{kept} are kept for nobody"
        elif (queue.state is QueueState.FETCHING_COMPLETED) > bool(queue.catchup):
            broken = "completed, with nothing left"
        elif queue.state is QueueState.NORMAL and queue.catchup:
            broken = "normal, with something left to catch up with"
        elif len(queue.normal) > settings.normal.entries + run_entries or not all(sizes):
            broken = f"{len(queue.normal)} wait, the bound is {settings.normal.entries}, sizes {sizes}"
        elif len(queue.catchup) > settings.catchup.entries + run_entries:
            broken = f"{len(queue.catchup)} wait, the bound is {settings.catchup.entries}"
        elif queue.popped_entries > settings.window.entries:
            broken = f"{queue.popped_entries} are unacknowledged, the bound is {settings.window.entries}"
        if broken:
            self.world.violate("a queue is what its state says", f"{target.name}: {broken}")
        if queue.state is not QueueState.SUSPENDED:
            key = (core.player_term, target.name, target.term)
            if not self._last_acks.get(key, -1) <= target.last_ack <= max(store.position, store.acknowledged):
                text = (
                    f"{target.name}: {target.last_ack} after {self._last_acks.get(key)}, at {store.position}"
                )
                self.world.violate("acknowledgements go forward, up to what is stored", text)
            self._last_acks[key] = target.last_ack

    def stopped(self, store: Store, reason: str) -> None:
        """A player will not go on with a target."""
        if store.position + 1 >= self.first_position:
            text = f"{store.name} at {store.position}, the log begins at {self.first_position}: {reason}"
            self.world.violate("only a target that has lost entries is stopped", text)
