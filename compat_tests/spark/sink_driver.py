"""One Spark session that writes as compat_tests/test_spark_sink.py asks; runs in Spark's environment.

One JSON object per line in, one per line out (line_driver.py). Bytes are base64 text or null.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from spark_connector.data_source import LockstepDataSource

_ROW = (
    "topic string, key binary, value binary, partition int, millis bigint, "
    "headers array<struct<key: string, value: binary>>"
)
_WAIT_S = 120


class Driver:
    """Commands by name."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def write(self, ask: dict[str, Any]) -> None:
        """A batch: rows, of which `columns` (SQL) are written."""
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
        frame = self._spark.createDataFrame(rows, _ROW).coalesce(ask.get("tasks", 2))
        frame.selectExpr(*ask["columns"]).write.format(ask["format"]).mode("append").options(
            **ask["settings"]
        ).save()

    def fail(self, ask: dict[str, Any]) -> None:
        """A batch whose last rows cannot be made, when others are written already."""
        frame = self._spark.range(0, ask["records"], 1, 1).selectExpr(
            f"cast(if(id < {ask['records'] - 1}, id, raise_error('no such row')) AS string) AS value"
        )
        frame.write.format("lockstep").mode("append").options(**ask["settings"]).save()

    def copy(self, ask: dict[str, Any]) -> int:
        """A stream from a topic into another, up to what is there now; how many records it took."""
        frame = self._spark.readStream.format("kafka").options(**ask["source"]).load().select("value")
        writer = frame.writeStream.format("lockstep").options(**ask["settings"])
        query = writer.option("checkpointLocation", ask["checkpoint"]).trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(_WAIT_S):
                raise TimeoutError(f"the stream did not end in {_WAIT_S} s")
            return sum(each["numInputRows"] for each in query.recentProgress)
        finally:
            query.stop()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _session(jars: str) -> SparkSession:
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
    }
    builder = SparkSession.builder.master("local[2]").appName("lockstep-sink")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the JVM prints goes to stderr
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = _session(sys.argv[1])
    spark.dataSource.register(LockstepDataSource)
    driver = Driver(spark)
    for line in sys.stdin:
        ask = json.loads(line)
        try:
            answer = {"ok": getattr(driver, ask["do"])(ask)}
        except Exception as thrown:  # any of Spark's
            text = str(thrown)[:20_000]
            answer = {"error": {"code": -1, "class": type(thrown).__name__, "text": text}}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main()
