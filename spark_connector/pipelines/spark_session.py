"""The Spark session of a pipeline: one of its own, or the one that spark-submit has prepared.

Owns: the options of where a pipeline runs. Does not: know which jars belong to which Spark
(`spark_connector.session` does).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import spark_connector
from spark_connector.pipelines import log_frames
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.sessions import has_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit has started this process."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the Spark session; under spark-submit only --conf counts."""
    group = command.add_argument_group("Spark (by itself; spark-submit has its own options)")
    group.add_argument("--master", default="local[*]", help="(default %(default)s)")
    group.add_argument(
        "--jars", default="", metavar="PATHS", help="jars and directories of jars, with commas between"
    )
    group.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="of Spark; may be repeated"
    )


def session(options: argparse.Namespace, name: str) -> SparkSession:
    """A session for the pipeline's formats. PipelineFailed."""
    wanted_format = _format(options)
    config = log_frames.session_config(wanted_format)
    for each in options.conf:
        key, equals, value = each.partition("=")
        if not equals:
            raise PipelineFailed(f"--conf {each} is not of the form NAME=VALUE")
        config[key] = value
    jars = jars_in(options.jars)
    if jars:
        config["spark.jars"] = ",".join(jars)
    if _SUBMITTED not in os.environ:
        config.setdefault("spark.ui.showConsoleProgress", "false")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        needs_kafka = getattr(options, "source", None) == "kafka"
        made = spark_connector.session(name, master=options.master, config=config, kafka=needs_kafka)
    else:
        made = _submitted_session(name, config)
    if wanted_format == "delta" and not has_class(made, log_frames.DELTA_EXTENSION):
        made.stop()
        raise PipelineFailed(
            "--format delta needs the jars of Delta Lake: give them in --jars (docs/spark_pipelines.md has "
            "the commands), or write --format parquet"
        )
    made.sparkContext.setLogLevel("ERROR")
    return made


def _format(options: argparse.Namespace) -> str | None:
    """The format that is read or written; None where a pipeline has none, or only shows its table."""
    if getattr(options, "to", "") is None:
        return None
    found: str | None = getattr(options, "format", None)
    return found


def _submitted_session(name: str, config: Mapping[str, str]) -> SparkSession:
    """The session of spark-submit, with `format("lockstep")`."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in config.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    spark_connector.register(made)
    return made


def jars_in(paths: str) -> list[str]:
    """The jars that are named, and all of those directories that are. PipelineFailed for a missing
    one.
    """
    found: list[str] = []
    for each in filter(None, (part.strip() for part in paths.split(","))):
        path = Path(each)
        if path.is_dir():
            found += sorted(str(jar) for jar in path.glob("*.jar"))
        elif "://" in each or path.is_file():
            found.append(each)
        else:
            raise PipelineFailed(f"--jars {each}: there is no such file or directory")
    return found
