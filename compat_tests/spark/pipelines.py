"""One Spark session that runs the connector's pipelines; in an environment of its own.

One JSON object per line in, one per line out (line_driver.py): `{"do": "archive", "words": [...]}` takes the
words of the command line after the name; the answer is the pipeline's result, what it printed as "lines".
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = str(Path(__file__).resolve().parents[2])
sys.path[0] = _ROOT
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYTHONPATH"] = _ROOT  # of the workers, which the JVM starts

from compat_tests.spark.serving import Ask, serve  # noqa: E402
from spark_connector.pipelines import __main__ as command  # noqa: E402
from spark_connector.pipelines import spark_session  # noqa: E402
from spark_connector.pipelines.progress import ProgressReporter  # noqa: E402


def _run(spark: Any, name: str, words: list[str]) -> dict[str, Any]:
    options = command.parser().parse_args([name, *words])
    module, _ = command.PIPELINES[name]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = module.run(spark, module.from_arguments(options), ProgressReporter(name))
    return {**result, "lines": printed.getvalue().splitlines()}


def _start() -> tuple[Any, Callable[[Ask], Any]]:
    words = ["state", "--topic", "any", "--to", "any", "--format", "delta", *sys.argv[1:]]
    spark = spark_session.session(command.parser().parse_args(words), "lockstep-compat-pipelines")
    return spark, lambda ask: _run(spark, ask["do"], ask["words"])


def _why(thrown: Exception) -> Ask:
    return {"code": -1, "class": type(thrown).__name__, "text": command.summary_line(str(thrown))}


if __name__ == "__main__":
    serve(_start, _why)
