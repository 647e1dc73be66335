"""What becomes of sessions that test_spark_session.py asks for; run by the Python that has pyspark.

Arguments: what to do, then what it needs. Prints one JSON object.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # this is run as a file, by another Python
import spark_connector

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
}


def refused(jars: str) -> dict[str, Any]:
    """What is said where a session without the connector runs already."""
    from pyspark.sql import SparkSession

    from spark_connector.sessions import SessionError

    builder = SparkSession.builder.master("local[1]")
    for name, value in _QUIET.items():
        builder = builder.config(name, value)
    plain = builder.getOrCreate()
    try:
        spark_connector.session(jars=jars)
        said = "nothing"
    except SessionError as error:
        said = str(error)
    plain.stop()
    return {"said": said}


def without_jars(bootstrap: str, topic: str) -> dict[str, Any]:
    """Rows through format("lockstep") in a session that was given no jar, and what the session warned of."""
    import warnings

    os.environ.pop("LOCKSTEP_SPARK_JARS", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spark = spark_connector.session(master="local[1]", config=_QUIET)
    options = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.createDataFrame([("a",), ("b",)], "value string")
    rows.write.format("lockstep").options(**options, topic=topic).mode("append").save()
    frame = spark.read.format("lockstep").options(**options, subscribe=topic).load()
    values = sorted(bytes(row.value).decode() for row in frame.select("value").collect())
    spark.stop()
    said = [str(each.message) for each in caught if issubclass(each.category, RuntimeWarning)]
    return {"values": values, "said": said}


def resolved(ivy: str) -> dict[str, Any]:
    """Whether kafka=True without jars has Spark fetch a connector whose classes load."""
    from spark_connector.sessions import has_class

    os.environ.pop("LOCKSTEP_SPARK_JARS", None)
    spark = spark_connector.session(master="local[1]", config={**_QUIET, "spark.jars.ivy": ivy}, kafka=True)
    found = has_class(spark, "org.apache.spark.kafka010.KafkaTokenUtil")
    spark.stop()
    return {"found": found}


def shipped(jars: str, bootstrap: str, topic: str) -> dict[str, Any]:
    """Executors in processes of their own, which have nothing of ours but what the session sends them."""
    assert "PYTHONPATH" not in os.environ
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = spark_connector.session(master="local-cluster[1,1,512]", jars=jars, config=_QUIET)
    again = spark_connector.session()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    frame = again.read.format("lockstep").options(**options).load()
    values = [bytes(row.value).decode() for row in frame.select("value").collect()]
    spark.stop()
    return {"values": values, "same": again is spark}


def before_limits(bootstrap: str, topic: str) -> dict[str, Any]:
    """The stream's reader as pyspark 4.0 and 4.1 meet it, where there is no admission control to import."""
    import pyspark.sql.datasource

    assert pyspark.sql.datasource.ReadLimit, "4.2 or newer: it imports what is hidden now"
    sys.modules["pyspark.sql.streaming.datasource"] = None  # type: ignore[assignment]
    from spark_connector.options import OptionError, source_options
    from spark_connector.source.stream import StreamReader

    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    reader: Any = StreamReader(source_options(options))
    start, end = reader.initialOffset(), reader.latestOffset()
    rows = sum(batch.num_rows for each in reader.partitions(start, end) for batch in reader.read(each))
    reader.commit(end)
    reader.stop()
    try:
        StreamReader(source_options({**options, "maxOffsetsPerTrigger": "5"}))
        said = "nothing"
    except OptionError as error:
        said = str(error)
    parameters = len(inspect.signature(reader.latestOffset).parameters)
    return {"rows": rows, "same": start["group"] == end["group"], "said": said, "parameters": parameters}


def target(bootstrap: str, topic: str) -> dict[str, Any]:
    """The order in which Spark asks: the target first, the beginning after that, when there is more."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from spark_connector.options import source_options
    from spark_connector.source.stream import StreamReader

    reader: Any = StreamReader(source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic}))
    reader.prepareForTriggerAvailableNow()
    reader._target = dict.fromkeys(reader._target, 0)  # as it was before the topic's records
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.stop()
    return {"start": start["topics"], "end": end["topics"]}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the JVM prints goes to stderr
    answers.write(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
    answers.flush()
