"""What the drivers here share: small sessions, questions and answers as lines of JSON, rows in them.

One JSON object per line in, one per line out (line_driver.py). Bytes are base64 text or null. Drivers run in
Spark's environment, which has nothing of the project's but what is imported by its place.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

Ask = dict[str, Any]

SETTINGS: Mapping[str, str] = {
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
"""Of a session for a few rows at a time."""

_ROW = (
    "topic string, key binary, value binary, partition int, millis bigint, "
    "headers array<struct<key: string, value: binary>>"
)
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestampType")
_CAUSES = 12


def serve(
    start: Callable[[], tuple[SparkSession, Callable[[Ask], Any]]],
    why: Callable[[Exception], Ask] | None = None,
) -> None:
    """Answer each line of standard input until it ends.

    Args:
        start: makes the session, and who answers.
        why: what is told of an exception; each of its causes, unless told otherwise.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the JVM prints goes to stderr
    spark, answered = start()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        try:
            answer = {"ok": answered(json.loads(line))}
        except Exception as thrown:  # any of Spark's
            answer = {"error": (why or _causes)(thrown)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    spark.stop()


def by_name(driver: object) -> Callable[[Ask], Any]:
    """Questions answered by the method that they name."""

    def answered(ask: Ask) -> Any:
        return getattr(driver, ask["do"])(ask)

    return answered


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows of a Kafka source, times in milliseconds; headers where it has any."""
    headers = ["headers"] if "headers" in frame.columns else []
    stamp = "unix_millis(timestamp) AS timestamp"
    found = frame.selectExpr(*_COLUMNS, stamp, *headers).collect()
    return [{name: _json(value) for name, value in each.asDict().items()} for each in found]


def frame_of(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    """Rows for a sink, with all that one may have; what they do not say is null."""
    made = [
        (
            each.get("topic"),
            _bytes(each.get("key")),
            _bytes(each.get("value")),
            each.get("partition"),
            each.get("millis"),
            [(name, _bytes(value)) for name, value in each["headers"]] if "headers" in each else None,
        )
        for each in rows
    ]
    return spark.createDataFrame(made, _ROW)


def _json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [[each["key"], _json(each["value"])] for each in value]
    return value


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _causes(thrown: Exception) -> dict[str, Any]:
    """Spark wraps the broker's errors in its own: -1 stands for all of them, "causes" has each."""
    java = getattr(thrown, "java_exception", None) or getattr(thrown, "_origin", None)
    causes: list[list[str]] = []
    while java is not None and len(causes) < _CAUSES:
        causes.append([java.getClass().getName(), str(java.getMessage())])
        java = java.getCause()
    own = [type(thrown).__name__, str(thrown)]
    return {"code": -1, "class": own[0], "text": own[1][:20_000], "causes": causes or [own]}
