"""`state`: a compacted topic as a table: the newest value of each key; a key that ended with a tombstone is
gone.

Owns: the choice of a key's newest record (the highest offset of its partition; a key that is in several
partitions, because their number was raised, has a row for each). Compaction takes no newest record away, so
the table is the same before and after it, but tombstones that it took as well.

Does not: look into values, or keep a table up to date: it is written whole, in place of the one before.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_connector.pipelines import log_frames
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.progress import ProgressReporter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN_BYTES: Final = 60


@dataclass(frozen=True)
class StateSettings:
    """`to`: a table's path, which is overwritten; None: shown."""

    bootstrap: str
    topic: str
    to: str | None
    format: str = "delta"
    source: str = "kafka"
    rows_shown: int = 20
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Kafka's client properties of TLS and SASL."""


def run(spark: SparkSession, settings: StateSettings, progress: ProgressReporter) -> dict[str, Any]:
    """Writes or shows the table. Returns figures; raises Spark's errors."""
    options: Mapping[str, str] = log_frames.read_options(
        settings.bootstrap, [settings.topic], {}, settings.properties
    )
    table = newest(log_frames.batch(spark, settings.source, options))
    if settings.to is None:
        shown = table.orderBy("partition", "key").limit(settings.rows_shown)
        text = f"substring(cast({{0}} AS string), 1, {_SHOWN_BYTES}) AS {{0}}"
        shown.selectExpr("partition", text.format("key"), text.format("value"), "timestamp", "offset").show(
            settings.rows_shown, truncate=False
        )
        keys = table.count()
    else:
        table.write.format(settings.format).mode("overwrite").save(settings.to)
        keys = spark.read.format(settings.format).load(settings.to).count()
    progress.end(keys, "keys")
    return {"keys": keys}


def newest(records: DataFrame) -> DataFrame:
    """The newest record of each key that is not a tombstone; records without a key are none of a table."""
    from pyspark.sql import functions

    content = functions.struct("value", "headers", "timestamp", "offset")
    grouped = records.where("key IS NOT NULL").groupBy("partition", "key")
    found = grouped.agg(functions.max_by(content, "offset").alias("newest"))
    return found.where("newest.value IS NOT NULL").select("partition", "key", "newest.*")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this pipeline."""
    command.add_argument("--topic", required=True, help="which topic")
    command.add_argument(
        "--to", metavar="PATH", help="the table, which is overwritten (default: it is shown)"
    )
    command.add_argument(
        "--format", choices=log_frames.FORMATS, default="delta", help="(default %(default)s)"
    )
    command.add_argument(
        "--source",
        choices=log_frames.SOURCES,
        default="lockstep",
        help="Spark's source (default %(default)s)",
    )
    command.add_argument("--rows", type=int, default=20, help="how many are shown (default %(default)s)")


def from_arguments(options: argparse.Namespace) -> StateSettings:
    """Raises PipelineFailed for invalid options."""
    if options.rows < 1:
        raise PipelineFailed(f"--rows {options.rows}: there is at least one")
    return StateSettings(
        options.bootstrap, options.topic, options.to, options.format, options.source, options.rows
    )
