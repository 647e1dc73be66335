"""One Spark session that does what test_spark_source.py and test_spark_sink.py ask; in Spark's environment.

The questions are the methods of `Driver`, as `serving` reads them. "settings" are options of a source or
sink, handed over as they are; "source" is the format to read with.

The session is made by `spark_connector.session`, so each case here is one of it, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # this is run as a file, by another Python
import spark_connector
from compat_tests.spark.serving import SETTINGS, Ask, by_name, frame_of, rows_of, serve

_WAIT_S = 60


class Driver:
    """Commands by name."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def version(self, _: Ask) -> str:
        return str(self._spark.version)

    def read(self, ask: Ask) -> dict[str, Any]:
        """A batch query: all rows and how many tasks read them."""
        frame = self._spark.read.format(ask["source"]).options(**ask["settings"]).load()
        return {"rows": rows_of(frame), "tasks": frame.rdd.getNumPartitions()}

    def stream(self, ask: Ask) -> dict[str, Any]:
        """An AvailableNow stream into files: all rows so far; what this run took, in how many batches."""
        frame = self._spark.readStream.format(ask["source"]).options(**ask["settings"]).load()
        output = f"{ask['directory']}/rows"
        writer = frame.writeStream.format("parquet").option("path", output)
        taken = self._run(writer, ask["directory"])
        return {"rows": rows_of(self._spark.read.parquet(output)), **taken}

    def copy(self, ask: Ask) -> dict[str, int]:
        """An AvailableNow stream from the source straight into Spark's own sink."""
        frame = self._spark.readStream.format(ask["source"]).options(**ask["settings"]).load()
        frame = frame.selectExpr("key", "value", "headers")
        writer = frame.writeStream.format("kafka").options(**ask["sink"])
        return self._run(writer, ask["directory"])

    @staticmethod
    def _run(writer: Any, directory: str) -> dict[str, Any]:
        query = (
            writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
        )
        try:
            if not query.awaitTermination(_WAIT_S):
                raise TimeoutError(f"the stream did not end in {_WAIT_S} s")
            progress = query.recentProgress
            taken = [each["numInputRows"] for each in progress]
        finally:
            query.stop()
        ends = [json.loads(each["sources"][0]["endOffset"] or "null") for each in progress]
        return {
            "taken": sum(taken),
            "batches": sum(1 for each in taken if each),
            "end": ends[-1] if ends else None,
        }

    def write(self, ask: Ask) -> None:
        """A batch of rows; `columns` (SQL) are written, to the format `sink`."""
        frame = frame_of(self._spark, ask["rows"]).selectExpr(*ask["columns"])
        frame.write.format(ask["sink"]).mode("append").options(**ask["settings"]).save()

    def fail(self, ask: Ask) -> None:
        """A batch whose last row cannot be made, when others are written already."""
        frame = self._spark.range(0, ask["records"], 1, 1).selectExpr(
            f"cast(if(id < {ask['records'] - 1}, id, raise_error('no such row')) AS string) AS value"
        )
        frame.write.format("lockstep").mode("append").options(**ask["settings"]).save()

    def copy_exactly(self, ask: Ask) -> int:
        """An AvailableNow stream, from Spark's own source unless another is named, into the exactly-once
        sink: how many records it took."""
        source = self._spark.readStream.format(ask.get("source", "kafka"))
        frame = source.options(**ask["from"]).load().select("value")
        writer = frame.writeStream.format("lockstep").options(**ask["settings"])
        return int(self._run(writer, ask["directory"])["taken"])


def _start() -> tuple[SparkSession, Callable[[Ask], Any]]:
    """Its argument: the connector's jars, with commas between them."""
    spark = spark_connector.session(
        "lockstep-connector", master="local[2]", config=SETTINGS, jars=sys.argv[1].split(",")
    )
    return spark, by_name(Driver(spark))


if __name__ == "__main__":
    serve(_start)
