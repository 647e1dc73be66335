"""`audit`: the contents of every target of a player, compared with the log up to that target's position.

Owns: the comparison. It reads one snapshot of each target, with its marks (positions); then the log up to the
highest mark, routed as the player's file defines; then it compares each target and partition up to its mark:

| difference | meaning |
|---|---|
| `ahead` | a mark, or a record that was applied, where the log has ended, or which lies beyond the mark |
| `missing` | the log has a record for this target, and it was not applied |
| `extra` | applied, though the log has no such record for this target |
| `twice` | applied more than once |
| `order` | applied after a later record of its partition |
| `key` | applied with another key than the log has |
| `value` | the stored value of a key differs from the log's, is missing, or should not exist |

A key's value must be that of its record that was applied last; that order was compared before. Rows whose
records were deleted or compacted in the log cannot be compared: they are counted as `unchecked`.

Does not: stop a player. Targets may be anywhere: each is compared at its own mark.
"""

from __future__ import annotations

import argparse
import base64
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lockstep.protocol.records.record import Record
from spark_connector.connection import ClusterClient
from spark_connector.options import EARLIEST, LATEST
from spark_connector.pipelines import log_frames, routes, shard_stores
from spark_connector.pipelines.differences import find_differences
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.progress import ProgressReporter
from spark_connector.pipelines.routes import RouteConfig, TargetRouter
from spark_connector.pipelines.topic_queries import config_of, default_bootstrap, offsets_of

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

_ROUTED: Final = "target STRING, partition INT, offset BIGINT, key BINARY, value BINARY"
_RANGES: Final = "target STRING, partition INT, first BIGINT, mark BIGINT"


@dataclass(frozen=True)
class AuditSettings:
    """`stores`: the URL of each target's store, by the target's name."""

    bootstrap: str
    route_config: RouteConfig
    stores: Mapping[str, str]
    source: str = "kafka"
    differences_shown: int = 20
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Kafka's client properties of TLS and SASL."""


@dataclass(frozen=True)
class TargetRange:
    """The range of offsets that one target has of one partition. `first`: its earliest possible beginning."""

    target: str
    partition: int
    first: int
    mark: int


@dataclass(frozen=True)
class _Log:
    """The present state of the topic."""

    cluster_id: str
    topic_id: bytes
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    is_compacted: bool
    encoded_id: str = ""
    """The topic's id as marks have it, and Kafka's tools."""
    log_ids: Mapping[str, int] = field(default_factory=dict)
    """The partition of each log, by the name that marks have."""


def run(spark: SparkSession, settings: AuditSettings, progress: ProgressReporter) -> dict[str, Any]:
    """Compares. Returns figures, `differences` among them; raises PipelineFailed, Spark's and the stores'
    errors.
    """
    route_config = settings.route_config
    snapshots = {}
    for name, url in settings.stores.items():
        snapshots[name] = shard_stores.read_snapshot(url, route_config.topic)
        progress.note(
            f"{name}: {snapshots[name].applied.num_rows:,} applied, {snapshots[name].values.num_rows:,} keys"
        )
    log = _log(settings)  # after the stores, so that it reaches at least as far
    for name, snapshot in snapshots.items():
        _check_same_topic(name, snapshot.marks, route_config.topic, log)
    positions = list(_positions(route_config, snapshots, log))
    ahead = [each for each in positions if each.mark >= log.ends[each.partition]]
    expected = _expected_records(spark, settings, log, positions)
    applied = _stored_rows(spark, {name: each.applied for name, each in snapshots.items()}, log)
    values = _stored_rows(spark, {name: each.values for name, each in snapshots.items()}, log)
    ranges = spark.createDataFrame(
        [(each.target, each.partition, each.first, each.mark) for each in positions], _RANGES
    )
    found = find_differences(expected, applied, values, ranges, is_compacted=log.is_compacted)
    shown = [
        f"ahead: {each.target}: its mark in partition {each.partition} is {each.mark}, the log ends at "
        f"{log.ends[each.partition]}"
        for each in ahead
    ]
    shown += found.sample(settings.differences_shown)
    for line in shown[: settings.differences_shown]:
        print(line, flush=True)
    kinds = dict(found.counts)
    if ahead:
        kinds["ahead"] = kinds.get("ahead", 0) + len(ahead)
    result = {
        "targets": len(snapshots),
        "compared": found.compared,
        "keys": found.keys,
        "unchecked": found.unchecked,
        "differences": sum(kinds.values()),
        "kinds": kinds,
    }
    progress.end(found.compared, f"{result['differences']} differences")
    return result


def _log(settings: AuditSettings) -> _Log:
    route_config = settings.route_config
    topic = route_config.topic
    with ClusterClient(settings.bootstrap, properties=settings.properties) as cluster:
        known = cluster.topic(topic)
        starts = offsets_of(cluster, topic, EARLIEST)
        ends = offsets_of(cluster, topic, LATEST, committed=True)
        cleanup = config_of(cluster, topic, "cleanup.policy") or ""
        cluster_id = cluster.cluster_id or ""
    audited = starts if route_config.partitions is None else route_config.partitions
    encoded = base64.urlsafe_b64encode(known.topic_id)[:22].decode()
    log_ids = {f"{cluster_id}/{encoded}/{partition}": partition for partition in audited}
    return _Log(cluster_id, known.topic_id, starts, ends, "compact" in cleanup, encoded, log_ids)


def _check_same_topic(name: str, marks: Mapping[str, int], topic: str, log: _Log) -> None:
    """Raises PipelineFailed where a target has marks but none of this topic: nothing would be compared, and
    no difference found. A target without marks has received nothing yet; a target of other topics alone
    cannot be distinguished from one of another cluster."""
    if marks and log.log_ids.keys().isdisjoint(marks):
        raise PipelineFailed(
            f"--store {name}: none of its marks is of topic {topic}, whose id is {log.encoded_id} in cluster "
            f"{log.cluster_id}; it has {min(marks)}: other brokers (-b), or was the topic re-created?"
        )


def _positions(
    route_config: RouteConfig, snapshots: Mapping[str, shard_stores.StoreSnapshot], log: _Log
) -> Iterator[TargetRange]:
    for name, begins in route_config.first:
        if name not in snapshots:
            continue
        found = snapshots[name]
        for log_id, mark in found.marks.items():
            if log_id not in log.log_ids:
                continue  # of another topic, or of one that was deleted
            partition = log.log_ids[log_id]
            first = log.starts[partition]
            if begins == "latest":
                first = max(first, _first_applied(found, log_id, mark + 1))
            elif isinstance(begins, int):
                first = max(first, begins)
            yield TargetRange(name, partition, first, mark)


def _first_applied(found: shard_stores.StoreSnapshot, log_id: str, otherwise: int) -> int:
    """The first offset of a target that began at the end of the log."""
    import pyarrow.compute

    offsets = found.applied.filter(pyarrow.compute.field("log_id") == log_id)["offset"]
    return int(pyarrow.compute.min(offsets).as_py()) if len(offsets) else otherwise


def _expected_records(
    spark: SparkSession, settings: AuditSettings, log: _Log, positions: Iterable[TargetRange]
) -> DataFrame:
    """target, partition, offset, key, value: the records of the log for each target, up to the highest
    mark."""
    route_config = settings.route_config
    ends = dict(log.starts)
    for each in positions:
        ends[each.partition] = max(ends[each.partition], min(each.mark + 1, log.ends[each.partition]))
    options = log_frames.read_options(
        settings.bootstrap,
        [route_config.topic],
        {
            "startingOffsets": log_frames.as_json({route_config.topic: log.starts}),
            "endingOffsets": log_frames.as_json({route_config.topic: ends}),
        },
        settings.properties,
    )
    records = log_frames.batch(spark, settings.source, options).selectExpr(
        "partition", "offset", "key", "value", "unix_millis(timestamp) AS timestamp_ms", "headers"
    )
    return records.mapInArrow(_route_function(route_config, frozenset(settings.stores)), _ROUTED)


def _route_function(
    route_config: RouteConfig, targets: frozenset[str]
) -> Callable[[Iterable[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """The function that a task applies to records."""

    def route(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        schema = pyarrow.schema(
            [
                ("target", pyarrow.string()),
                ("partition", pyarrow.int32()),
                ("offset", pyarrow.int64()),
                ("key", pyarrow.binary()),
                ("value", pyarrow.binary()),
            ]
        )
        choose = TargetRouter(route_config)
        for each in batches:
            rows = []
            for partition, offset, key, value, time_ms, headers in zip(
                *(column.to_pylist() for column in each.columns), strict=True
            ):
                named = [(one["key"], one["value"]) for one in headers or ()]
                chosen = choose(Record(offset, time_ms, key, value, named))
                rows += [(name, partition, offset, key, chosen[name]) for name in chosen if name in targets]
            columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
            arrays = [
                pyarrow.array(list(column), kind.type) for column, kind in zip(columns, schema, strict=True)
            ]
            yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)

    return route


def _stored_rows(spark: SparkSession, tables: Mapping[str, pyarrow.Table], log: _Log) -> DataFrame:
    """The rows of all targets, with `target` and `partition`; rows of other logs are left out."""
    from pyspark.sql import functions

    logs = spark.createDataFrame(
        [(log_id, partition) for log_id, partition in log.log_ids.items()], "log_id STRING, partition INT"
    )
    frames = [
        spark.createDataFrame(table).withColumn("target", functions.lit(name))
        for name, table in tables.items()
    ]
    every = functools.reduce(lambda one, other: one.unionByName(other), frames)
    return every.join(functions.broadcast(logs), "log_id").drop("log_id")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this pipeline."""
    command.set_defaults(bootstrap=None)  # the player's file may name them
    command.add_argument(
        "--player", type=Path, required=True, metavar="FILE", help="the player's configuration"
    )
    command.add_argument(
        "--store",
        action="append",
        required=True,
        metavar="NAME=URL",
        help="a target's store: sqlite:///file.db or postgresql://...; once for each target",
    )
    command.add_argument(
        "--source",
        choices=log_frames.SOURCES,
        default="lockstep",
        help="Spark's source (default %(default)s)",
    )
    command.add_argument(
        "--differences", type=int, default=20, metavar="N", help="how many are shown (default %(default)s)"
    )


def from_arguments(options: argparse.Namespace) -> AuditSettings:
    """Raises PipelineFailed for invalid options."""
    route_config = routes.read(options.player)
    stores: dict[str, str] = {}
    for each in options.store:
        name, equals, url = each.partition("=")
        if not equals:
            raise PipelineFailed(f"--store {each} is not of the form NAME=URL")
        if name not in route_config.targets:
            raise PipelineFailed(f"--store {each}: {options.player} has no target {name!r}")
        stores[name] = url
    if missing := [name for name in route_config.targets if name not in stores]:
        raise PipelineFailed(f"--store: {', '.join(missing)} of {options.player} must be named, too")
    bootstrap = options.bootstrap or route_config.bootstrap or default_bootstrap()
    return AuditSettings(bootstrap, route_config, stores, options.source, options.differences)
