"""One Spark session that does what test_spark_source.py and test_spark_sink.py ask; in Spark's environment.

One JSON object per line in, one per line out (line_driver.py). "settings" are options of a source or sink,
handed over as they are; "source" is the format to read with. Bytes are base64 text or null.

The session is made by `spark_connector.session`, so each case here is one of it, too.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # this is run as a file, by another Python
import spark_connector

_ROW = (
    "topic string, key binary, value binary, partition int, millis bigint, "
    "headers array<struct<key: string, value: binary>>"
)
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestampType")
_WAIT_S = 60


class Driver:
    """Commands by name."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def version(self, _: dict[str, Any]) -> str:
        return str(self._spark.version)

    def read(self, ask: dict[str, Any]) -> dict[str, Any]:
        """A batch query: all rows and how many tasks read them."""
        frame = self._spark.read.format(ask["source"]).options(**ask["settings"]).load()
        return {"rows": _rows(frame), "tasks": frame.rdd.getNumPartitions()}

    def stream(self, ask: dict[str, Any]) -> dict[str, Any]:
        """An AvailableNow stream into files: all rows so far; what this run took, in how many batches."""
        frame = self._spark.readStream.format(ask["source"]).options(**ask["settings"]).load()
        output = f"{ask['directory']}/rows"
        writer = frame.writeStream.format("parquet").option("path", output)
        taken = self._run(writer, ask["directory"])
        return {"rows": _rows(self._spark.read.parquet(output)), **taken}

    def copy(self, ask: dict[str, Any]) -> dict[str, int]:
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

    def write(self, ask: dict[str, Any]) -> None:
        """A batch of rows; `columns` (SQL) are written, to the format `sink`."""
        rows = [
            (
                each.get("topic"),
                _bytes(each.get("key")),
                _bytes(each.get("value")),
                each.get("partition"),
                each.get("millis"),
                [(name, _bytes(value)) for name, value in each["headers"]] if "headers" in each else None,
            )
            for each in ask["rows"]
        ]
        frame = self._spark.createDataFrame(rows, _ROW).selectExpr(*ask["columns"])
        frame.write.format(ask["sink"]).mode("append").options(**ask["settings"]).save()

    def fail(self, ask: dict[str, Any]) -> None:
        """A batch whose last row cannot be made, when others are written already."""
        frame = self._spark.range(0, ask["records"], 1, 1).selectExpr(
            f"cast(if(id < {ask['records'] - 1}, id, raise_error('no such row')) AS string) AS value"
        )
        frame.write.format("lockstep").mode("append").options(**ask["settings"]).save()

    def copy_exactly(self, ask: dict[str, Any]) -> int:
        """An AvailableNow stream into the exactly-once sink: how many records it took."""
        frame = self._spark.readStream.format("kafka").options(**ask["from"]).load().select("value")
        writer = frame.writeStream.format("lockstep").options(**ask["settings"])
        return int(self._run(writer, ask["directory"])["taken"])


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    headers = ["headers"] if "headers" in frame.columns else []
    stamp = "unix_millis(timestamp) AS timestamp"
    found = frame.selectExpr(*_COLUMNS, stamp, *headers).collect()
    return [{name: _json(value) for name, value in each.asDict().items()} for each in found]


def _json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [[each["key"], _json(each["value"])] for each in value]
    return value


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _session(jars: str) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        # a few rows each: compiling costs more than it brings
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
    }
    made = spark_connector.session(
        "lockstep-connector", master="local[2]", config=settings, jars=jars.split(",")
    )
    made.sparkContext.setLogLevel("ERROR")
    return made


def _error(thrown: Exception) -> dict[str, Any]:
    """Spark wraps the broker's errors in its own: -1 stands for all of them, the text has the causes."""
    return {"code": -1, "class": type(thrown).__name__, "text": str(thrown)[:20_000]}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the JVM prints goes to stderr
    spark = _session(sys.argv[1])
    driver = Driver(spark)
    for line in sys.stdin:
        ask = json.loads(line)
        command: Callable[[dict[str, Any]], Any] = getattr(driver, ask["do"])
        try:
            answer = {"ok": command(ask)}
        except Exception as thrown:  # any of Spark's
            answer = {"error": _error(thrown)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main()
