"""A log as a DataFrame, and an archive as one: the columns that all pipelines agree on.

Owns: the columns of an archived record, the partitioning by time, the options with which a log is read. Reads
are read_committed, with headers. `format("lockstep")` stores the position of a stream as a
consumer group, so that its lag is seen by every Kafka tool; `format("kafka")` is Spark's own source, and
needs no connector on the executors.

| column | type | |
|---|---|---|
| `topic`, `partition`, `offset` | string, int, long | the record's position |
| `timestamp`, `timestampType` | timestamp, int | of the record, to the millisecond; 0 its own, 1 the log's |
| `key`, `value` | binary | null where it has none |
| `headers` | array of (key string, value binary) | in order; null where it has none |
| `date`, `hour` | date, int | of `timestamp`, in UTC: directories of the archive |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCES: Final = ("lockstep", "kafka")
FORMATS: Final = ("delta", "parquet")
RECORD: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
DIRECTORIES: Final = ("topic", "date", "hour")
SCHEMA: Final = (
    "partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING, date DATE, hour INT"
)
"""The schema of an archive in Parquet, whose directories' names Spark would read as numbers otherwise."""

DELTA_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
"""The extension of Delta Lake's jars. Spark skips an extension that it does not find."""

Offsets = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""


def read_options(
    bootstrap: str, topics: Sequence[str], more: Mapping[str, str], properties: Mapping[str, str]
) -> dict[str, str]:
    """The options of a source; `more` comes last. Args: properties: Kafka's, of TLS and SASL."""
    return {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": ",".join(topics),
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        **{f"kafka.{name}": text for name, text in properties.items()},
        **more,
    }


def batch(spark: SparkSession, source: str, options: Mapping[str, str]) -> DataFrame:
    """The present records of the log, or those between the offsets of the options."""
    return spark.read.format(source).options(**options).load()


def stream(spark: SparkSession, source: str, options: Mapping[str, str]) -> DataFrame:
    """The log as it grows."""
    return spark.readStream.format(source).options(**options).load()


def as_json(offsets: Offsets) -> str:
    """The JSON for startingOffsets and endingOffsets."""
    return json.dumps(
        {topic: {str(partition): offset for partition, offset in of.items()} for topic, of in offsets.items()}
    )


def with_archive_columns(records: DataFrame) -> DataFrame:
    """Records of a log with the columns of an archive."""
    from pyspark.sql import functions

    return records.select(
        *RECORD,
        functions.to_date("timestamp").alias("date"),
        functions.hour("timestamp").alias("hour"),
    )


def archive(spark: SparkSession, archive_format: str, path: str) -> DataFrame:
    """Reads an archive: the files of its transactions alone, without those of a killed writer."""
    reader = spark.read.format(archive_format)
    if archive_format == "parquet":
        reader = reader.schema(SCHEMA)
    return reader.load(path)


def session_config(archive_format: str | None) -> dict[str, str]:
    """The configuration of a session: directories in UTC, and Delta's commands where it is used."""
    config: dict[str, Any] = {"spark.sql.session.timeZone": "UTC"}
    if archive_format == "delta":
        config["spark.sql.extensions"] = DELTA_EXTENSION
        config["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    return config
