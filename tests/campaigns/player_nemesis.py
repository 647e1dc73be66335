"""What happens to the processes of the player's campaign: kill -9, and SIGSTOP with SIGCONT after a while.

Owns: the faults and when they come. In each round each kind of fault comes once, in random order. What it
broke is healed some random seconds later, while others happen: a target is killed while the player is
stopped. A stopped player wakes up, often after another one has taken over. One node at a time is down or
stopped.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from compat_tests.targets import TargetFailed
from tests.campaigns.brokers import Brokers
from tests.campaigns.player_processes import LEASE_S, Player, Process, Target

FAULTS: Final = ("kill_player", "kill_target", "kill_broker", "stop_player", "stop_target", "stop_broker")
PLAYING_SHARE: Final = 0.8
"""Of the faults of players, those of the one that plays."""
DOWN_S: Final = (0.0, 1.5 * LEASE_S)
"""Some come back before anybody else has taken over."""
STOPPED_S: Final = (0.5, 2.5 * LEASE_S)
BROKER_STOPPED_S: Final = (0.2, 4.0)
PAUSE_S: Final = (0.2, 2.5)
"""Between two faults."""
TICK_S: Final = 0.05


class Nemesis:
    """Called by the campaign's loop."""

    def __init__(
        self,
        brokers: Brokers,
        players: Sequence[Player],
        targets: Sequence[Target],
        faults: Sequence[str],
        rng: random.Random,
    ) -> None:
        """`faults`: of `FAULTS`."""
        self.spared: Target | None = None
        """Nothing is done to it."""
        self.counts: Counter[str] = Counter()
        self.rounds = 0
        """That are over."""
        self._brokers = brokers
        self._players = players
        self._targets = targets
        self._rng = rng
        self._heals: list[tuple[float, Callable[[], None]]] = []
        self._kinds = faults
        self._left: list[str] = []
        """Of this round."""
        self._next_s = time.monotonic() + rng.uniform(*PAUSE_S)

    def act(self) -> None:
        """Cause the next fault if it is time. TargetFailed."""
        if time.monotonic() < self._next_s:
            return
        if not self._left:
            self._left = self._rng.sample(self._kinds, len(self._kinds))
        kind = self._left[0]
        fault: Callable[[], bool] = getattr(self, f"_{kind}")
        if fault():
            self._left.pop(0)
            self.counts[kind] += 1
            self.rounds += not self._left
        self._next_s = time.monotonic() + self._rng.uniform(*PAUSE_S)

    def heal_due(self) -> None:
        """Heal what is due by now."""
        now = time.monotonic()
        for each in [each for each in self._heals if each[0] <= now]:
            self._heals.remove(each)
            each[1]()

    def heal(self) -> None:
        """Everything, now."""
        for _, each in self._heals:
            each()
        self._heals = []

    # --- faults: each returns whether there was anybody to do it to ---------------------------------------

    def _kill_player(self) -> bool:
        return self._kill(self._some_player())

    def _kill_target(self) -> bool:
        return self._kill(self._some_target())

    def _stop_player(self) -> bool:
        return self._stop(self._some_player())

    def _stop_target(self) -> bool:
        return self._stop(self._some_target())

    def _kill_broker(self) -> bool:
        self._brokers.kill(self._rng)
        return True

    def _stop_broker(self) -> bool:
        node = self._brokers.nodes[self._rng.choice(sorted(self._brokers.nodes))]
        if not node.running:
            raise TargetFailed(f"a node ended by itself with {node.exit_code}\n{node.log_tail()}")
        until = time.monotonic() + self._rng.uniform(*BROKER_STOPPED_S)
        os.kill(node.pid, signal.SIGSTOP)
        try:
            while time.monotonic() < until:
                time.sleep(TICK_S)
        finally:
            os.kill(node.pid, signal.SIGCONT)
        return True

    def _kill(self, process: Process | None) -> bool:
        if process is None:
            return False
        process.kill9()
        self._later(DOWN_S, process.restart)
        return True

    def _stop(self, process: Process | None) -> bool:
        if process is None:
            return False
        process.stop()
        self._later(STOPPED_S, process.go_on)
        return True

    def _later(self, after_s: tuple[float, float], heal: Callable[[], None]) -> None:
        self._heals.append((time.monotonic() + self._rng.uniform(*after_s), heal))

    def _some_player(self) -> Player | None:
        up = [each for each in self._players if each.is_up]
        playing = [each for each in up if each.plays()]
        if not up:
            return None
        chosen = self._rng.choice(playing if playing and self._rng.random() < PLAYING_SHARE else up)
        self.counts["while_it_played"] += chosen in playing
        return chosen

    def _some_target(self) -> Target | None:
        up = [each for each in self._targets if each.is_up and each is not self.spared]
        return self._rng.choice(up) if up else None
