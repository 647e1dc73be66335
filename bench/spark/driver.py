"""One Spark session that reads and writes as `bench.spark.command` asks; in Spark's environment.

One JSON object per line in, one per line out (`compat_tests.line_driver`). Seconds are wall-clock, of the
whole action as an application sees it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from spark_connector.data_source import LockstepDataSource
from spark_connector.sink.writers import StreamWriter

TIMEOUT_S = 300


class TimedWriter(StreamWriter):
    """The sink; what each commit took is added to a file, in seconds."""

    def __init__(self, options: Any, schema: Any) -> None:
        options = dict(options)
        self._path = options.pop("times")
        super().__init__(options, schema)

    def commit(self, messages: Any, batchId: int) -> None:
        began = time.perf_counter()
        super().commit(messages, batchId)
        with open(self._path, "a") as file:
            file.write(f"{time.perf_counter() - began}\n")


class TimedLockstep(DataSource):  # type: ignore[misc, unused-ignore]
    """`timed-lockstep`."""

    @classmethod
    def name(cls) -> str:
        return "timed-lockstep"

    def streamWriter(self, schema: Any, overwrite: bool) -> TimedWriter:
        return TimedWriter(self.options, schema)


class Driver:
    """Commands by name."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, ask: dict[str, Any]) -> dict[str, float]:
        """All of a topic: records, bytes of their values, seconds."""
        options = {"kafka.bootstrap.servers": ask["bootstrap"], "subscribe": ask["topic"]}
        began = time.perf_counter()
        frame = self._spark.read.format(ask["format"]).options(**options, **ask["options"]).load()
        (row,) = frame.selectExpr("count(*) AS n", "sum(length(value)) AS size").collect()
        return {"records": row["n"], "bytes": row["size"], "seconds": time.perf_counter() - began}

    def write(self, ask: dict[str, Any]) -> dict[str, float]:
        """So many values of one size into a topic, two tasks: seconds."""
        frame = self._spark.range(0, ask["records"], 1, 2)
        frame = frame.selectExpr(f"rpad(cast(id AS string), {ask['record_bytes']}, 'x') AS value")
        options = {"kafka.bootstrap.servers": ask["bootstrap"], "topic": ask["topic"]}
        began = time.perf_counter()
        frame.write.format(ask["format"]).options(**options).mode("append").save()
        return {"records": ask["records"], "seconds": time.perf_counter() - began}

    def epochs(self, ask: dict[str, Any]) -> dict[str, Any]:
        """A stream of small epochs into a topic: what each commit took, and each epoch, in seconds."""
        with tempfile.TemporaryDirectory(prefix="bench-spark-") as directory:
            times = Path(directory) / "times"
            options = {"kafka.bootstrap.servers": ask["bootstrap"], "topic": ask["topic"]}
            if ask["format"] == "timed-lockstep":
                options["times"] = str(times)
            frame = (
                self._spark.readStream.format("rate-micro-batch")
                .option("rowsPerBatch", ask["records"])
                .option("numPartitions", 2)
                .load()
            )
            query = (
                frame.selectExpr("cast(value AS string) AS value")
                .writeStream.format(ask["format"])
                .options(**options)
                .option("checkpointLocation", f"{directory}/checkpoint")
                .start()
            )
            deadline = time.monotonic() + TIMEOUT_S
            try:
                while query.isActive and len(query.recentProgress) < ask["epochs"]:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"{len(query.recentProgress)} epochs in {TIMEOUT_S} s")
                    time.sleep(0.05)
                if query.exception() is not None:
                    raise query.exception()
                whole = [each["durationMs"]["addBatch"] / 1000 for each in query.recentProgress]
            finally:
                query.stop()
            said = times.read_text().split() if times.exists() else []
            return {"commits": [float(each) for each in said], "epochs": whole}


def session(jars: str) -> SparkSession:
    """Two processors, as an application would have it."""
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder.master("local[2]").appName("lockstep-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever Spark prints
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session(sys.argv[1])
    for each in (LockstepDataSource, TimedLockstep):
        spark.dataSource.register(each)
    driver = Driver(spark)
    for line in sys.stdin:
        ask = json.loads(line)
        try:
            answer = {"ok": getattr(driver, ask["do"])(ask)}
        except Exception as thrown:
            text = str(thrown)[:20_000]
            answer = {"error": {"code": -1, "class": type(thrown).__name__, "text": text}}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main()
