"""The Prometheus metrics of a player: its own counts and positions, read at each scrape.

Owns: names, units and words of every metric (docs/player.md lists them). Labels are partitions (or `log
group N`) and targets of one topic, as the configuration has them. Counters begin at 0 whenever a log begins
to be delivered here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lockstep.broker.process.process_output import dropped_lines
from lockstep.player.core.target import LinkState
from lockstep.player.core.transitions import QueueState
from lockstep.player.driver.counters import TargetCounters
from lockstep.player.driver.status import PlayerStatus, TargetStatus
from lockstep.player.source.interface import partition_label
from lockstep.player_host.players import Players

PREFIX: Final = "lockstep_player_"

LOG_GAUGES: Final[tuple[tuple[str, str, Callable[[PlayerStatus], float]], ...]] = (
    ("term", "player_term in which this process delivers the partition", attrgetter("player_term")),
    ("started", "1 where the main stream has begun to be read", attrgetter("started")),
    (
        "position",
        "Up to there the main stream has been read; -1 before anything was",
        attrgetter("current_position"),
    ),
)

TARGET_GAUGES: Final[tuple[tuple[str, str, Callable[[TargetStatus], float]], ...]] = (
    ("target_open", "1 where the target's stream is open", lambda each: each.link == LinkState.OPEN.value),
    (
        "target_stopped",
        "1 where nothing is sent to the target until an operator resumes it",
        lambda each: each.link == LinkState.STOPPED.value,
    ),
    (
        "target_recovering",
        "1 where the target is sent what it has missed",
        lambda each: each.state in (QueueState.RECOVERY_FETCHING.value, QueueState.FETCHING_COMPLETED.value),
    ),
    ("target_term", "Term of the newest stream to the target", attrgetter("target_term")),
    (
        "target_last_ack_position",
        "The target has stored everything up to there; -1 where nothing is known of it",
        attrgetter("last_ack"),
    ),
    (
        "target_lag_positions",
        "Positions between what the main stream has read and what the target has stored",
        attrgetter("lag"),
    ),
    ("target_waiting_entries", "Entries that wait to be sent", attrgetter("waiting_entries")),
    ("target_waiting_bytes", "Size in bytes of what waits to be sent", attrgetter("waiting_bytes")),
    (
        "target_unacknowledged_entries",
        "Entries that were sent and are not acknowledged",
        attrgetter("unacknowledged_entries"),
    ),
    (
        "target_unacknowledged_bytes",
        "Size in bytes of what was sent and is not acknowledged",
        attrgetter("unacknowledged_bytes"),
    ),
    (
        "target_overflows",
        "How often in a row too much was waiting for the target",
        attrgetter("overflows"),
    ),
    (
        "target_hung",
        "Consecutive streams closed because the target acknowledged nothing of what it was sent",
        attrgetter("hung"),
    ),
    ("target_failures", "Consecutive failed streams to the target", attrgetter("failures")),
)

TARGET_COUNTERS: Final[tuple[tuple[str, str, Callable[[TargetCounters], float]], ...]] = (
    ("target_streams", "Streams opened to the target", attrgetter("streams")),
    (
        "target_recoveries",
        "Streams on which the target had missed something that was read from the log",
        attrgetter("recoveries"),
    ),
    ("target_recovery_reads", "Reads of the log for recoveries", attrgetter("fetches")),
    ("target_batches", "Batches sent", attrgetter("batches")),
    ("target_parts", "Entries sent, dummies not counted", attrgetter("parts")),
    ("target_dummies", "Dummies sent, which only move the target's mark", attrgetter("dummies")),
    ("target_sent_bytes", "Payload in bytes that was sent", attrgetter("sent_bytes")),
    (
        "target_acknowledgements",
        "Acknowledgements received, responses to heartbeats among them",
        attrgetter("acknowledgements"),
    ),
)


class PlayerCollector(Collector):
    """The collector of one process."""

    def __init__(self, players: Players) -> None:
        self._players = players

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        dropped = CounterMetricFamily(
            PREFIX + "output_lines_dropped",
            "Lines for standard output and standard error that were never written",
        )
        dropped.add_metric([], dropped_lines())
        yield dropped
        drivers = list(self._players.drivers.values())
        statuses = [each.status() for each in drivers]
        for name, words, of_log in LOG_GAUGES:
            gauge = GaugeMetricFamily(PREFIX + name, words, labels=("partition",))
            for status in statuses:
                gauge.add_metric([_part(status)], of_log(status))
            yield gauge
        unrouted = CounterMetricFamily(
            PREFIX + "unrouted", "Parts of entries for targets that there are not", labels=("partition",)
        )
        for status in statuses:
            unrouted.add_metric([_part(status)], status.unrouted)
        yield unrouted
        for name, words, of_target in TARGET_GAUGES:
            gauge = GaugeMetricFamily(PREFIX + name, words, labels=("partition", "target"))
            for status in statuses:
                for target in status.targets:
                    gauge.add_metric([_part(status), target.name], of_target(target))
            yield gauge
        for name, words, count in TARGET_COUNTERS:
            counter = CounterMetricFamily(PREFIX + name, words, labels=("partition", "target"))
            for driver, status in zip(drivers, statuses, strict=True):
                for target in status.targets:
                    labels = [_part(status), target.name]
                    counter.add_metric(labels, count(driver.target_counters(target.name)))
            yield counter


def _part(status: PlayerStatus) -> str:
    return partition_label(status.partition, status.log_group)
