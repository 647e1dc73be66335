"""One Spark session that does what compat_tests/spark_cases asks; runs in an environment of its own.

One JSON object per line in, one per line out (line_driver.py). "settings" are options of Spark's Kafka source
or sink, handed over as they are. Bytes are base64 text or null.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession  # type: ignore[import-not-found, unused-ignore]

_ROW = (
    "topic string, key binary, value binary, partition int, headers array<struct<key: string, value: binary>>"
)
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestampType")
_WAIT_S = 60
_CAUSES = 12


class Driver:
    """Commands by name."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._queries: dict[int, Any] = {}

    def version(self, _: dict[str, Any]) -> str:
        return str(self._spark.version)

    def configure(self, ask: dict[str, Any]) -> None:
        """Settings of the session; null takes one back."""
        for name, value in ask["conf"].items():
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)

    def read(self, ask: dict[str, Any]) -> dict[str, Any]:
        """A batch query: all rows and how many tasks read them."""
        frame = self._spark.read.format("kafka").options(**ask["settings"]).load()
        return {"rows": _rows(frame), "tasks": frame.rdd.getNumPartitions()}

    def open(self, ask: dict[str, Any]) -> int:
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

    def took(self, ask: dict[str, Any]) -> None:
        """Wait until a stream has taken so many rows."""
        query = self._queries[ask["query"]]
        deadline = time.monotonic() + _WAIT_S
        while sum(each["rows"] for each in _progress(query)) < ask["rows"]:
            if query.awaitTermination(0.1):  # throws what ended it
                raise RuntimeError(f"the stream ended before {ask['rows']} rows: {_progress(query)}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"not {ask['rows']} rows in {_WAIT_S} s: {_progress(query)}")

    def ended(self, ask: dict[str, Any]) -> None:
        """Wait until a stream has ended by itself; what broke it is thrown."""
        if not self._queries[ask["query"]].awaitTermination(_WAIT_S):
            raise TimeoutError(f"the stream did not end in {_WAIT_S} s")

    def stop(self, ask: dict[str, Any]) -> list[dict[str, Any]]:
        """Stop a stream, whether it still runs or not; its batches."""
        query = self._queries[ask["query"]]
        query.stop()
        return _progress(query)

    def rows(self, ask: dict[str, Any]) -> list[dict[str, Any]]:
        """What streams into this directory have written so far."""
        return _rows(self._spark.read.parquet(f"{ask['directory']}/rows"))

    def write(self, ask: dict[str, Any]) -> None:
        rows = [
            (
                each.get("topic"),
                _bytes(each.get("key")),
                _bytes(each.get("value")),
                each.get("partition"),
                [(name, _bytes(value)) for name, value in each.get("headers", [])],
            )
            for each in ask["rows"]
        ]
        frame = self._spark.createDataFrame(rows, _ROW).selectExpr(*ask["columns"])
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


def _session(own: dict[str, str]) -> SparkSession:
    """`own`: settings that bring the connector; options of the JVM are added to ours."""
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
    for name, value in own.items():
        settings[name] = f"{settings[name]} {value}" if name in settings else value
    builder = SparkSession.builder.master("local[2]").appName("lockstep-compat")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def _error(thrown: Exception) -> dict[str, Any]:
    """Spark wraps the broker's errors in its own: -1 stands for all of them, "causes" has each."""
    java = getattr(thrown, "java_exception", None) or getattr(thrown, "_origin", None)
    causes: list[list[str]] = []
    while java is not None and len(causes) < _CAUSES:
        causes.append([java.getClass().getName(), str(java.getMessage())])
        java = java.getCause()
    own = [type(thrown).__name__, str(thrown)]
    return {"code": -1, "class": own[0], "text": own[1][:20_000], "causes": causes or [own]}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the JVM prints goes to stderr
    spark = _session(json.loads(sys.argv[1]))
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
