"""Blocks of what is in the log already: how fast it is played, and what it takes to begin again.

Owns: filling a log, and three questions: records a second from one node to four targets; how long a target
that missed something takes to have it all; how many entries a player that starts again reads twice, which
dummies are for. An entry is a record batch: where entries count, each has one record. `Stalled`: a target
whose process is stopped (SIGSTOP), which leaves its connection open; afterwards it must get all it missed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from confluent_kafka import Producer

from bench.exit_status import log_progress
from bench.machine.process import RssSampler
from bench.player.delays import ARRIVE_TIMEOUT_S, Blocks, PlayerSession, load, player_of
from bench.player.points import GRPC, OPEN, RAW, REMOTE, Axes, Point
from bench.player.workload import KEY_VALUE_BYTES
from bench.player.writer import TIMEOUT_S, NotWritten
from bench.sessions.children import Child, Connected, LineChild, Words
from bench.sessions.jobs import Block, RoundFailed, unclaimed_block
from bench.settings import FLUSH

THROUGHPUT_TARGETS = 4
KEYS = 10_000
BATCH_RECORDS = 100
"""In the batches that are played as fast as possible."""
FILL_WINDOW_RECORDS = 10_000
DUMMY_WINDOW = 4
PLAYED_TIMEOUT_S = 300.0
WARM_ENTRIES = 10
BACKOFF_MS = 100
"""The most that a player waits here before it tries a target again."""


def fill(bootstrap: str, topic: str, records: int, batch_records: int, keys: int, window: int) -> None:
    """Records of 1 KB, with so many different keys, `window` of them on their appender. Raises NotWritten."""
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5 if batch_records > 1 else 0,
            "batch.num.messages": batch_records,
            "enable.idempotence": True,
            "queue.buffering.max.messages": window,
        }
    )

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            failed.append(str(error))

    value = b"x" * KEY_VALUE_BYTES
    for number in range(records):
        while not failed:
            try:
                producer.produce(topic, value, b"%d" % (number % keys), partition=0, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(TIMEOUT_S) or failed:
        raise NotWritten(failed[0] if failed else f"no acknowledgement within {TIMEOUT_S:.0f} s")


class Backlogs:
    """Runs of one session, on one node."""

    def __init__(self, session: PlayerSession, axes: Axes) -> None:
        self.session = session
        self.axes = axes

    def throughput(self, system: str) -> None:
        """One target per record, four targets, from the log's beginning. RoundFailed."""
        count = self.axes.throughput_records
        topic = self.session.topic(FLUSH)
        self.fill(topic, count, BATCH_RECORDS)
        with (
            self._targets(THROUGHPUT_TARGETS, "raw" if system == RAW else "grpc") as targets,
            self._player(topic, targets.next_response()["addresses"], system, "key") as player,
        ):
            player.next_response()
            found = self._await_records(targets, count)
        begun_ns = min(each["greeted_ns"] for each in found)
        took_s = (max(each["last_ns"] for each in found) - begun_ns) / 1e9
        name = "throughput" if system == GRPC else f"throughput_{system}"
        per_s = count / took_s
        figures = {"records": count, "seconds": took_s, "records_per_s": per_s}
        self._note(name, {**figures, "mb_per_s": per_s * KEY_VALUE_BYTES / 1e6})
        log_progress(f"  {name:26} {per_s:,.0f} records/s")

    def recovery(self, missed: int) -> None:
        """One of two targets is away while so many entries are written. RoundFailed."""
        topic = self.session.topic(FLUSH)
        with (
            self._targets(2, "grpc") as targets,
            self._player(topic, targets.next_response()["addresses"], GRPC, "all") as player,
        ):
            player.next_response()
            self.fill(topic, WARM_ENTRIES)
            self.wait(targets, [WARM_ENTRIES] * 2)
            targets.call({"do": "away", "target": 1})
            self.fill(topic, missed)
            self.wait(targets, [WARM_ENTRIES + missed, WARM_ENTRIES])
            back_ns = time.monotonic_ns()
            targets.call({"do": "back", "target": 1})
            target = self.wait(targets, [WARM_ENTRIES + missed] * 2)[1]
        took_s = (target["last_ns"] - target["greeted_ns"]) / 1e9
        figures = {"missed": missed, "recovery_s": took_s, "entries_per_s": missed / took_s}
        self._note(f"recovery{missed}", {**figures, "reconnect_s": (target["greeted_ns"] - back_ns) / 1e9})
        log_progress(f"  missed {missed:,} entries: {took_s:.3f} s from the greeting to the last")

    def dummies(self, every: int) -> None:
        """A target that gets the first entry only, and a player that starts again. RoundFailed."""
        count = self.axes.dummy_entries
        topic = self.session.topic(FLUSH)
        with self._targets(2, "grpc") as targets:
            addresses = targets.next_response()["addresses"]
            with self._player(topic, addresses, GRPC, "rare", dummy_every=every) as player:
                player.next_response()
                self.fill(topic, count, keys=count, window=DUMMY_WINDOW)  # so that few come at a time
                self.wait(targets, [count, 1])
                sent = self._await_end(player)["dummies"]
            with self._player(topic, addresses, GRPC, "rare", dummy_every=every, player_term=2) as again:
                again.next_response()
                found = self._await_end(again)
        figures = {name: found[name] for name in ("read_again", "start_s")}
        self._note(f"dummies{every}", {"entries": count, "dummies": sent, **figures})
        log_progress(
            f"  a dummy every {every or 'never'}: {found['read_again']:,} of {count:,} entries read again"
        )

    # -- parts ------------------------------------------------------------------------------------------

    def fill(
        self,
        topic: str,
        records: int,
        batch_records: int = 1,
        keys: int = KEYS,
        window: int = FILL_WINDOW_RECORDS,
    ) -> None:
        """RoundFailed."""
        try:
            fill(self.session.target.bootstrap, topic, records, batch_records, keys, window)
        except NotWritten as error:
            raise RoundFailed(str(error)) from error

    def _targets(self, count: int, transport: str) -> Child:
        return Child(
            "bench.player.targets", {"targets": count, "transport": transport, "directory": "", "keep": False}
        )

    def _player(
        self,
        topic: str,
        addresses: list[str],
        system: str,
        route: str,
        *,
        player_term: int = 1,
        **settings: int,
    ) -> Child | Connected:
        words = {"player_term": player_term, "settings": {"longest_backoff_ms": BACKOFF_MS, **settings}}
        return player_of(self.session, system, topic, addresses, route, **words)

    def _await_records(self, targets: Child, count: int) -> list[Words]:
        """Until the targets have so many records together."""
        deadline = time.monotonic() + PLAYED_TIMEOUT_S
        while True:
            found: list[Words] = self.wait(targets, [0] * THROUGHPUT_TARGETS)
            got = sum(each["records"] for each in found)
            if got == count:
                return found
            if got > count or time.monotonic() > deadline:
                raise RoundFailed(f"the targets have {got} records, {count} are in the log")
            time.sleep(0.1)

    def wait(self, targets: Child, records: list[int]) -> list[Words]:
        """Until each of them has so many. RoundFailed."""
        line = {"do": "wait", "records": records, "timeout_s": PLAYED_TIMEOUT_S}
        found: list[Words] = targets.call(line, PLAYED_TIMEOUT_S + 10)["targets"]
        return found

    def _await_end(self, player: LineChild) -> Words:
        """Its status when it has reached the end, and nothing is unacknowledged any more."""
        deadline = time.monotonic() + PLAYED_TIMEOUT_S
        while True:
            found = player.call({"do": "status"})
            if found["settled"]:
                return found
            if time.monotonic() > deadline:
                raise RoundFailed(f"the player does not come to an end: {found}")
            time.sleep(0.05)

    def _note(self, name: str, figures: dict[str, Any]) -> None:
        self.session.blocks.append(unclaimed_block(name, FLUSH, figures))


TARGETS: Final = 4
"""The last of which is stopped."""
OTHERS_CALM, OTHERS_STALLED, MISSED_MEMORY = "others_calm", "others_stalled", "missed_memory"


@contextmanager
def pause_process(pid: int) -> Iterator[None]:
    """That process is stopped while the body runs."""
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
        job = load(axes, OPEN, point, mode="log", topics=[topic], **words)
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
                    arrived = others.call(asked, 2 * ARRIVE_TIMEOUT_S)
                last.call(asked, 2 * ARRIVE_TIMEOUT_S)  # nothing is lost, doubled or out of order there, too
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
