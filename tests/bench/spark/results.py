"""A Spark result, and one that is kept, for tests."""

from __future__ import annotations

import json
from typing import Any

from compat_tests.targets import ROOT
from tests.bench.outcomes import FACTS

KEPT = ROOT / "bench" / "results" / "full" / "spark" / "1n-spark.json"


def kept_result() -> dict[str, Any]:
    """The run of the grid's row."""
    ((block,),) = [json.loads(KEPT.read_text())["rounds"]]
    return dict(block["result"])


def spark_result(theirs: list[list[float]], **more: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "kind": "spark",
        "command": "python -m bench spark",
        **FACTS,
        "records": 1000,
        "record_bytes": 1000,
        "rounds": len(theirs),
        "seconds": {
            "source.lockstep.kafka.1": [[1.0, 3.0, 2.0] for _ in theirs],
            "source.kafka.kafka.1": theirs,
            **more,
        },
    }
