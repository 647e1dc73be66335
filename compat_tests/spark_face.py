"""One Spark session as tests see it: `spark/connector_driver.py` pointed at one broker, rows as JSON.

Owns: which source reads ("kafka" is Spark's own, "lockstep" the connector's), how options are spelled for it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compat_tests.harness import World
from compat_tests.targets import Target

Rows = list[dict[str, Any]]


class Spark:
    """The session, pointed at one broker; reads go through `source`."""

    def __init__(self, world: World, target: Target, directory: Path, source: str = "kafka") -> None:
        self._driver = world.spark_connector()
        self._servers = {"kafka.bootstrap.servers": target.bootstrap}
        self._directory = str(directory)
        self._source = source
        self.reached: dict[str, Any] = {}
        """The offsets where the last stream ended, as its source has them."""

    def read(self, **options: object) -> Rows:
        return self.read_in_tasks(**options)[0]

    def read_in_tasks(self, **options: object) -> tuple[Rows, int]:
        """All rows in order of topic, partition and offset; how many tasks read them."""
        found = self._driver.ask("read", self._options(options), source=self._source)
        return in_order(found["rows"]), found["tasks"]

    def stream(self, **options: object) -> tuple[Rows, int, int]:
        """Run to what is there now: all rows so far; what this run took, in how many batches."""
        found = self._driver.ask(
            "stream", self._options(options), directory=self._directory, source=self._source
        )
        self.reached = found["end"]
        return in_order(found["rows"]), found["taken"], found["batches"]

    def copy(self, source: str, sink: str, **options: object) -> int:
        """A stream from one topic to another; how many records this run took."""
        settings = self._options({"subscribe": source, "includeHeaders": True, **options})
        into = {**self._servers, "topic": sink}
        asked = self._driver.ask("copy", settings, sink=into, directory=self._directory, source=self._source)
        return int(asked["taken"])

    def write(self, rows: Rows, *columns: str, **options: object) -> None:
        self._driver.ask("write", self._options(options), rows=rows, columns=list(columns), sink="kafka")

    def _options(self, options: Mapping[str, object]) -> dict[str, str]:
        """As Spark wants them: text; true and false in lower case; the rest of what is not text as JSON."""
        found = {name.replace("__", "."): value for name, value in options.items()}
        return self._servers | {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items()
        }


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda each: (each["topic"], each["partition"], each["offset"]))


def as_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def values_of(rows: Rows) -> list[bytes]:
    return [base64.b64decode(each["value"]) for each in rows]


def where_of(rows: Rows) -> list[tuple[int, int]]:
    return [(each["partition"], each["offset"]) for each in rows]
