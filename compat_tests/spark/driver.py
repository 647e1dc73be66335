"""One Spark session that does what compat_tests/spark_cases asks; runs in an environment of its own.

The questions are the methods of `Driver`, as `serving` reads them. "settings" are options of Spark's Kafka
source or sink, handed over as they are.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # this is run as a file, by another Python
from compat_tests.spark.serving import SETTINGS, Ask, by_name, frame_of, rows_of, serve

_WAIT_S = 100


class Driver:
    """Commands by name."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._queries: dict[int, Any] = {}

    def version(self, _: Ask) -> str:
        return str(self._spark.version)

    def configure(self, ask: Ask) -> None:
        """Settings of the session; null takes one back."""
        for name, value in ask["conf"].items():
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)

    def read(self, ask: Ask) -> dict[str, Any]:
        """A batch query: all rows and how many tasks read them."""
        frame = self._spark.read.format("kafka").options(**ask["settings"]).load()
        return {"rows": rows_of(frame), "tasks": frame.rdd.getNumPartitions()}

    def open(self, ask: Ask) -> int:
        """Start a stream from the source into files ("parquet") or, with "sink", into Kafka's sink."""
        frame = self._spark.readStream.format("kafka").options(**ask["settings"]).load()
        if "sink" in ask:
            writer = frame.selectExpr(*ask["columns"]).writeStream.format("kafka").options(**ask["sink"])
        else:
            writer = frame.writeStream.format("parquet").option("path", f"{ask['directory']}/rows")
        writer = writer.option("checkpointLocation", f"{ask['directory']}/checkpoint")
        writer = writer.outputMode(ask.get("mode", "append")).trigger(**ask["trigger"])
        number = len(self._queries)
        query = self._queries[number] = writer.start()
        begun = Path(ask["directory"], "checkpoint", "sources", "0", "0")
        deadline = time.monotonic() + _WAIT_S
        while not begun.exists() and query.isActive and time.monotonic() < deadline:
            time.sleep(0.02)  # what is written from now on comes after "latest"
        return number

    def took(self, ask: Ask) -> None:
        """Wait until a stream has taken so many rows."""
        query = self._queries[ask["query"]]
        deadline = time.monotonic() + _WAIT_S
        while sum(each["rows"] for each in _progress(query)) < ask["rows"]:
            if query.awaitTermination(0.1):  # throws what ended it
                raise RuntimeError(f"the stream ended before {ask['rows']} rows: {_progress(query)}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"not {ask['rows']} rows in {_WAIT_S} s: {_progress(query)}")

    def ended(self, ask: Ask) -> None:
        """Wait until a stream has ended by itself; what broke it is thrown."""
        if not self._queries[ask["query"]].awaitTermination(_WAIT_S):
            raise TimeoutError(f"the stream did not end in {_WAIT_S} s")

    def stop(self, ask: Ask) -> list[dict[str, Any]]:
        """Stop a stream, whether it still runs or not; its batches."""
        query = self._queries[ask["query"]]
        query.stop()
        return _progress(query)

    def rows(self, ask: Ask) -> list[dict[str, Any]]:
        """What streams into this directory have written so far."""
        return rows_of(self._spark.read.parquet(f"{ask['directory']}/rows"))

    def write(self, ask: Ask) -> None:
        frame = frame_of(self._spark, ask["rows"]).selectExpr(*ask["columns"])
        frame.write.format("kafka").mode(ask["mode"]).options(**ask["settings"]).save()


def _progress(query: Any) -> list[dict[str, Any]]:
    """Batches with rows: how many, from which offsets to which, what the source said of its lag."""
    found = []
    for each in [json.loads(every.json) for every in query.recentProgress]:
        (source,) = each["sources"]
        if source["numInputRows"]:
            found.append(
                {
                    "rows": source["numInputRows"],
                    "start": source["startOffset"],
                    "end": source["endOffset"],
                    "latest": source.get("latestOffset"),
                    "metrics": source.get("metrics", {}),
                }
            )
    return found


def _start() -> tuple[SparkSession, Callable[[Ask], Any]]:
    """Its argument: settings that bring the connector; options of the JVM are added to ours."""
    settings = dict(SETTINGS)
    for name, value in json.loads(sys.argv[1]).items():
        settings[name] = f"{settings[name]} {value}" if name in settings else value
    builder = SparkSession.builder.master("local[2]").appName("lockstep-compat")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    return spark, by_name(Driver(spark))


if __name__ == "__main__":
    serve(_start)
