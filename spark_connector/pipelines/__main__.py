"""`python -m spark_connector.pipelines NAME …`: reads the command line, starts Spark where it is needed.

Also by `spark-submit --py-files … spark_connector/pipelines/__main__.py NAME …`: then the master and jars
are spark-submit's. The result is one line of JSON on standard output, progress is on standard error. Exit
status: 0 done, 1 it could not be done (one line has the reason), or an audit found differences, 2 wrong
usage, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, Final

from lockstep.kafka_client.security import read_properties
from spark_connector.connection import ClientError
from spark_connector.pipelines import archive, audit, events, replay, spark_session, state
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.progress import ProgressReporter
from spark_connector.pipelines.topic_queries import default_bootstrap
from spark_connector.sessions import SessionError

PIPELINES: Final[dict[str, tuple[ModuleType, str]]] = {
    "events": (events, "generate a data set and append it to topics"),
    "archive": (archive, "a log into Parquet or Delta, by time, exactly once"),
    "replay": (replay, "an archive into topics, byte for byte"),
    "audit": (audit, "what a player's targets hold, compared with the log"),
    "state": (state, "the newest value of each key of a compacted topic"),
}
_TRACEBACK: Final = "Traceback (most recent call last)"
_PY4J: Final = "An error occurred while calling "
"""The first words of every error of py4j."""
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(:|$)")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="python -m spark_connector.pipelines", description="Data pipelines over Lockstep's topics."
    )
    commands = root.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, (module, about) in PIPELINES.items():
        command = commands.add_parser(name, help=about, description=about)
        default = default_bootstrap()
        whose = "the player's, or " if module is audit else ""
        command.add_argument(
            "-b",
            "--bootstrap",
            default=default,
            metavar="HOST:PORT",
            help=f"brokers (default {whose}{default})",
        )
        command.add_argument(
            "--command-config",
            metavar="FILE",
            help="a file with Kafka's client properties of TLS and SASL; executors need the files it names",
        )
        command.add_argument("--quiet", action="store_true", help="no progress")
        module.add_arguments(command)
        if module is not events:
            spark_session.add_arguments(command)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _on_term)
    module, _ = PIPELINES[options.name]
    progress = ProgressReporter(options.name, quiet=options.quiet)
    try:
        result = _result(module, options, progress)
    except (PipelineFailed, SessionError, ClientError, ValueError, OSError) as error:
        return _report_failure(error)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j", "psycopg", "sqlite3"):
            raise
        return _report_failure(error)
    print(json.dumps({"pipeline": options.name, **result}), flush=True)
    return 1 if result.get("differences") else 0


def _result(module: ModuleType, options: argparse.Namespace, progress: ProgressReporter) -> dict[str, Any]:
    settings = module.from_arguments(options)
    if options.command_config:
        settings = replace(settings, properties=read_properties(options.command_config))
    if module is events:
        found: dict[str, Any] = events.run(settings, progress)
        return found
    spark = spark_session.session(options, f"lockstep {options.name}")
    try:
        found = module.run(spark, settings, progress)
        return found
    finally:
        with contextlib.suppress(Exception):  # a JVM that Ctrl-C has ended: it must not be the reason given
            spark.stop()


def _report_failure(error: Exception) -> int:
    print(f"error: {summary_line(str(error)) or type(error).__name__}", file=sys.stderr)
    return 1


def summary_line(text: str) -> str:
    """Spark's errors are pages long; where Python failed in a task, its traceback's last line has the reason,
    and where Java failed, its second line."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if _TRACEBACK in text:
        raised = [line for line in lines[_traceback_end(lines) :] if _RAISED.match(line)]
        lines = raised[:1] or lines
    elif text.startswith(_PY4J) and len(lines) > 1:
        lines = [lines[1].removeprefix(": ")]
    return lines[0].removeprefix("spark_connector.pipelines.failures.PipelineFailed: ") if lines else ""


def _traceback_end(lines: Sequence[str]) -> int:
    """The number of the line after the first one of the last traceback."""
    return max(number for number, line in enumerate(lines) if _TRACEBACK in line) + 1


def _on_term(number: int, _frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
