"""A grid of small workloads that is measured for real, and a workload to be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.full import command
from tests.bench.outcomes import FACTS

TINY = """
name = "tiny"
about = "whether it works"
kind = "produce"
targets = ["lockstep"]
message_bytes = 100
batch_bytes = 300
in_flight = 3
minutes = 0.005
warmup_s = 0.1
rounds = 1

[axes]
partitions = [1]
producers = [2]
rate = [0, 100]
"""


class Grid:
    """A directory of workloads and one of rows, and the command on both."""

    def __init__(self, directory: Path) -> None:
        self.workloads, self.out = directory / "workloads", directory / "rows"
        self.workloads.mkdir()
        self._directory = directory

    def write(self, text: str) -> None:
        (self.workloads / "tiny.toml").write_text(text)

    def run(self, *words: str) -> int:
        where = ["--workloads", str(self.workloads), "--out", str(self.out)]
        return command.main(["--quick", "--directory", str(self._directory), *where, *words])

    def rows(self) -> dict[str, dict[str, object]]:
        return {path.stem: json.loads(path.read_text()) for path in (self.out / "tiny").glob("*.json")}


GOOD = """
name = "w"
about = "words"
kind = "produce"
nodes = [1, 3]
targets = ["lockstep", "kafka", "kafka-flush", "kfake"]
message_bytes = 100
batch_bytes = 1000

[axes]
partitions = [1, 16]
producers = [4]
rate = [0, 500]
"""


def workload_file(directory: Path, text: str) -> Path:
    path = directory / "w.toml"
    path.write_text(text)
    return path


def write_row(directory: Path, workload: str, target: str, nodes: int = 1, **more: Any) -> None:
    row = {
        "cell": f"{workload}/{nodes}n-{target}",
        "settings": {"kind": "produce", "minutes": 0.05, "message_bytes": 1024},
        "nodes": nodes,
        "target": target,
        "point": {"partitions": 16, "rate": 0},
        **FACTS,
        **more,
    }
    points = "".join(f"-{axis}{value}" for axis, value in more.get("point", {}).items())
    path = directory / workload / f"{nodes}n-{target}{points}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row))


def rounds(figure: str, *values: float, **more: Any) -> dict[str, Any]:
    """What a row keeps of proven rounds with this figure: the median, and each."""
    middle = sorted(values)[len(values) // 2] if len(values) % 2 else sum(sorted(values)[:2]) / 2
    blocks = [{"proven": True, "figures": {figure: value, **more}} for value in values]
    return {"medians": {figure: middle, **more}, "rounds": blocks}
