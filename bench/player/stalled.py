"""Blocks of a target that stands still: what the others' delays lose by it, and the memory that it costs.

Owns: the process that is stopped. SIGSTOP leaves its connection open, so that the player has to find out
itself; afterwards it goes on, and must get all that it has missed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from bench.machine.process import RssSampler
from bench.player.backlogs import BATCH_RECORDS, KEYS, Backlogs
from bench.player.delays import ARRIVE_TIMEOUT_S, Blocks, PlayerSession, load, player_of
from bench.player.points import GRPC, OPEN, REMOTE, Axes, Point
from bench.progress import log_progress
from bench.sessions.children import Child
from bench.sessions.jobs import Block, unclaimed_block
from bench.settings import FLUSH

TARGETS: Final = 4
"""The last of which is stopped."""
OTHERS_CALM, OTHERS_STALLED, MISSED_MEMORY = "others_calm", "others_stalled", "missed_memory"


@contextmanager
def pause_process(pid: int) -> Iterator[None]:
    """That process stands still while the body runs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Stalled:
    """Runs of one session, on one node."""

    def __init__(self, session: PlayerSession, axes: Axes) -> None:
        self.session = session
        self.axes = axes
        self._blocks = Blocks(session, axes)

    def others(self) -> None:
        """The others' delays without and with it, in turn, every second pair mirrored. RoundFailed."""
        for number in range(self.axes.stall_pairs):
            pair = (OTHERS_CALM, OTHERS_STALLED) if number % 2 == 0 else (OTHERS_STALLED, OTHERS_CALM)
            for name in pair:
                self._others(name)

    def _others(self, name: str) -> None:
        axes, topic = self.axes, self.session.topic(FLUSH)
        point = Point(TARGETS, axes.targets_keys)
        words = {"rate": axes.stall_rate, "seconds": axes.stall_s}
        job = load(axes, OPEN, point, way="log", topics=[topic], **words)
        shape = {**point._asdict(), "transport": "grpc", "directory": ""}

        def work() -> Block:
            with ExitStack() as stack:
                others = stack.enter_context(Child("bench.player.targets", {**shape, "count": TARGETS - 1}))
                last = stack.enter_context(
                    Child("bench.player.targets", {**shape, "count": 1, "first": TARGETS - 1})
                )
                addresses = [*others.next_response()["addresses"], *last.next_response()["addresses"]]
                player = stack.enter_context(player_of(self.session, GRPC, topic, addresses, "split"))
                player.next_response()
                with ExitStack() as standing:
                    if name == OTHERS_STALLED:
                        standing.enter_context(pause_process(last.pid))
                    written, window = self._blocks.write(job)
                    asked = {**window, "timeout_s": ARRIVE_TIMEOUT_S}
                    arrived = others.ask(asked, 2 * ARRIVE_TIMEOUT_S)
                last.ask(asked, 2 * ARRIVE_TIMEOUT_S)  # nothing is lost, doubled or out of order there, too
                return {**written, **arrived}

        self._blocks.observe(name, OPEN, work)

    def measure_missed(self) -> None:
        """Memory of a player, a process of its own, while one of two targets misses records. RoundFailed."""
        count, topic = self.axes.stall_records, self.session.topic(FLUSH)
        backlogs = Backlogs(self.session, self.axes)
        lean = {"targets": 1, "transport": "grpc", "directory": "", "keep": False}
        with Child("bench.player.targets", lean) as other, Child("bench.player.targets", lean) as last:
            addresses = [*other.next_response()["addresses"], *last.next_response()["addresses"]]
            with player_of(self.session, REMOTE, topic, addresses, "all") as player:
                player.next_response()
                assert isinstance(player, Child)
                before, during = RssSampler([player.pid]), RssSampler([player.pid])
                with before.sample_rss():
                    backlogs.fill(topic, count // 10, BATCH_RECORDS, KEYS)
                    for each in (other, last):
                        backlogs.wait(each, [count // 10])
                with during.sample_rss():
                    with pause_process(last.pid):
                        backlogs.fill(topic, count, BATCH_RECORDS, KEYS)
                        backlogs.wait(other, [count // 10 + count])
                    backlogs.wait(last, [count // 10 + count])
        calm, most = (each.result()["rss_max_mb"] for each in (before, during))
        figures = {"missed": count, "calm_mb": calm, "most_mb": most, "grown_mb": max(most - calm, 0.0)}
        self.session.blocks.append(unclaimed_block(MISSED_MEMORY, FLUSH, figures))
        log_progress(
            f"  missed {count:,} records: the player had {calm:.0f} MB before, {most:.0f} MB at most"
        )
