"""One Spark driver of `tests.campaigns.spark_sink`: a stream from a topic into another, until it is killed.

Runs in Spark's environment; its one argument is JSON (see `Job` there). The sink is the product's; between
its commit and Spark's own record of it stands a pause where the campaign asks for one: a file `hold` in the
directory makes it write `committed` and wait, so that it can be killed at just that moment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from spark_connector.sink.writers import StreamWriter

HOLD_SECONDS = 3.0


class HeldWriter(StreamWriter):
    """The sink, and the pause behind its commit."""

    def __init__(self, options: Any, schema: Any, directory: str) -> None:
        super().__init__(options, schema)
        self._directory = directory

    def commit(self, messages: Any, batchId: int) -> None:
        super().commit(messages, batchId)
        directory = Path(self._directory)
        if (directory / "hold").exists():
            (directory / "committed").write_text(str(batchId))
            time.sleep(HOLD_SECONDS)


def source_of(directory: str) -> type[DataSource]:
    """A data source `held-lockstep`, whose pause is asked for in this directory."""

    class HeldLockstep(DataSource):  # type: ignore[misc, unused-ignore]
        @classmethod
        def name(cls) -> str:
            return "held-lockstep"

        def streamWriter(self, schema: Any, overwrite: bool) -> HeldWriter:
            return HeldWriter(self.options, schema, directory)

    return HeldLockstep


def session(job: dict[str, Any]) -> SparkSession:
    """Small, and fast to start."""
    settings = {
        "spark.jars": job["jars"],
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.2",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.executor.memory": "600m",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.task.maxFailures": "20",
        "spark.excludeOnFailure.enabled": "false",
    }
    builder = SparkSession.builder.master(job["master"]).appName("lockstep-spark-sink")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def main() -> int:
    job = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session(job)
    spark.dataSource.register(source_of(job["directory"]))
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job["bootstrap"])
        .option("subscribe", job["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(job["epoch_records"]))
        .load()
        .select("value")
    )
    sink = "held-lockstep" if job["sink"] == "lockstep" else "kafka"
    query = (
        frame.writeStream.format(sink)
        .option("kafka.bootstrap.servers", job["bootstrap"])
        .option("topic", job["target"])
        .option("checkpointLocation", f"{job['directory']}/checkpoint")
        .trigger(processingTime="0 seconds")
        .start()
    )
    print("started", flush=True)
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
