"""`events`: the generated data set, appended to the topics orders, payments and accounts.

Owns: the partition of an event (by key, as all Kafka producers do), and the topics' configuration:
accounts is compacted, and all of them keep records of any age. Restartable: each partition's end is the
number of its stored events; they are made again, and skipped. Needs no Spark.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from lockstep.protocol.partitioner import partition_of
from lockstep.protocol.records.compression import Codec
from spark_connector.connection import ClusterClient
from spark_connector.pipelines import event_data
from spark_connector.pipelines.claims import claim_topic
from spark_connector.pipelines.event_data import ACCOUNTS, BLOCK_EVENTS, TOPICS, Shape
from spark_connector.pipelines.partition_appender import BatchSettings, PartitionAppender
from spark_connector.pipelines.progress import ProgressReporter

CONFIGS: Final[dict[str, dict[str, str]]] = {ACCOUNTS: {"cleanup.policy": "compact"}}
_KEYS_REMEMBERED: Final = 100_000
_OLD_CONTENTS: Final = re.compile(
    r"(\w+) of Shape\(seed=(-?\d+), events=(\d+), accounts=(\d+), first_ms=(-?\d+), span_ms=(\d+)\), "
    r"by key over (\d+) partitions"
)
"""The earlier form of `contents` in claims."""


@dataclass(frozen=True)
class EventSettings:
    """`prefix`: before the topics' names. `checkpoint`: a directory that a restarted run must be given
    again.
    """

    bootstrap: str
    checkpoint: Path
    shape: Shape
    partitions: int = 8
    prefix: str = ""
    batch: BatchSettings = field(default_factory=BatchSettings)
    replication: int = -1
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Kafka's client properties of TLS and SASL."""


def run(settings: EventSettings, progress: ProgressReporter) -> dict[str, Any]:
    """Appends the missing events. Returns figures; raises PipelineFailed, ClientError."""
    shape = settings.shape
    began = time.monotonic()
    with ClusterClient(settings.bootstrap, properties=settings.properties) as cluster:
        appenders = _appenders(cluster, settings)
        waiting = {topic_partition: each.position for topic_partition, each in appenders.items()}
        chosen = lru_cache(_KEYS_REMEMBERED)(partition_of)
        added = 0
        progress.at(0)
        for number in range(-(-shape.events // BLOCK_EVENTS)):
            for topic, key, value, timestamp_ms, headers in event_data.block(shape, number):
                topic_partition = topic, chosen(key, settings.partitions)
                if waiting[topic_partition]:
                    waiting[topic_partition] -= 1
                else:
                    appenders[topic_partition].add((value, key, timestamp_ms, headers))
                    added += 1
            progress.at(min((number + 1) * BLOCK_EVENTS, shape.events))
        for appender in appenders.values():
            appender.finish()
    progress.end(shape.events)
    return {
        "events": shape.events,
        "appended": added,
        "resumed": shape.events - added,
        "seconds": round(time.monotonic() - began, 3),
    }


def _appenders(cluster: ClusterClient, settings: EventSettings) -> dict[tuple[str, int], PartitionAppender]:
    found = {}
    for topic in TOPICS:
        claimed = claim_topic(
            cluster,
            settings.checkpoint,
            settings.prefix + topic,
            contents(topic, settings.shape, settings.partitions),
            partitions=settings.partitions,
            configs=CONFIGS.get(topic, {}),
            replication=settings.replication,
            canonical_contents=canonical_contents,
        )
        for partition in range(settings.partitions):
            found[topic, partition] = PartitionAppender(cluster, claimed, partition, settings.batch)
    return found


def contents(topic: str, shape: Shape, partitions: int) -> str:
    """The description of a topic's events by the arguments that make them; two shapes never have the same."""
    default = Shape()
    times = f", over {shape.span_ms} ms from {shape.first_ms} ms after 1970 on"  # no argument changes them
    usual = (shape.first_ms, shape.span_ms) == (default.first_ms, default.span_ms)
    return (
        f"{topic} of --seed {shape.seed} --events {shape.events} --accounts {shape.accounts} "
        f"--partitions {partitions}{'' if usual else times}"
    )


def canonical_contents(claimed: str) -> str:
    """The contents of a claim in the present form, also where an older run has written them."""
    found = _OLD_CONTENTS.fullmatch(claimed)
    if found is None:
        return claimed
    topic, *numbers = found.groups()
    *of_shape, partitions = map(int, numbers)
    return contents(topic, Shape(*of_shape), partitions)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this pipeline."""
    default = Shape()
    command.add_argument("--events", type=int, default=default.events, help="how many (default %(default)s)")
    command.add_argument("--seed", type=int, default=default.seed, help="the same seed: the same bytes")
    command.add_argument("--accounts", type=int, default=default.accounts, help="(default %(default)s)")
    command.add_argument("--partitions", type=int, default=8, help="of each topic (default %(default)s)")
    command.add_argument("--replication", type=int, default=-1, help="(default: the broker's)")
    command.add_argument("--prefix", default="", help="before the names orders, payments and accounts")
    command.add_argument("--compression", choices=[each.name.lower() for each in Codec], default="none")
    command.add_argument(
        "--checkpoint", type=Path, required=True, metavar="DIR", help="a restarted run must be given it again"
    )


def from_arguments(options: argparse.Namespace) -> EventSettings:
    """Raises ValueError for invalid numbers."""
    if options.partitions < 1:
        raise ValueError(f"--partitions {options.partitions}: there is at least one")
    return EventSettings(
        options.bootstrap,
        options.checkpoint,
        Shape(options.seed, options.events, options.accounts),
        options.partitions,
        options.prefix,
        BatchSettings(codec=Codec[options.compression.upper()]),
        options.replication,
    )
