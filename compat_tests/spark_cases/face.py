"""What a case sees of Spark: one session pointed at one broker, and streams that run in it.

Owns: how options are written down (`kafka__isolation__level="read_committed"`: two underscores for a dot;
what is not text becomes JSON) and that every answer goes into the case's transcript. A stream that breaks
throws out of what waits for it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compat_tests.line_driver import DriverFailed, LineDriver
from compat_tests.spark_cases.transcript import Transcript, kinds

Row = dict[str, Any]
Batch = dict[str, Any]
AVAILABLE_NOW: Mapping[str, Any] = {"availableNow": True}
ALL_COLUMNS = ("key", "value", "headers")
CREATE_TIME, LOG_APPEND_TIME = 0, 1


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run of a stream did: all rows that its files hold by now, this run's batches with rows."""

    rows: list[Row]
    batches: list[Batch]

    @property
    def sizes(self) -> list[int]:
        return [each["rows"] for each in self.batches]

    @property
    def count(self) -> int:
        return sum(self.sizes)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why Spark failed: class and message of each exception, outermost first."""

    causes: Sequence[tuple[str, str]]

    def says(self, kind: str, words: str) -> None:
        """AssertionError unless one exception's class ends with `kind` and its message has the words."""
        found = any(each.endswith(kind) and words in message for each, message in self.causes)
        assert found, f"no {kind} with {words!r} in {[(each, text[:300]) for each, text in self.causes]}"


class Spark:
    """The session, pointed at one broker."""

    def __init__(self, driver: LineDriver, bootstrap: str, directory: Path, transcript: Transcript) -> None:
        self._driver = driver
        self._servers = {"kafka.bootstrap.servers": bootstrap}
        self._directory = directory
        self._transcript = transcript

    # -- batch ------------------------------------------------------------------------------------------

    def read(self, **options: Any) -> list[Row]:
        """All rows in order of topic, partition and offset."""
        return self.read_in_tasks(**options)[0]

    def read_in_tasks(self, *, kept: bool = True, **options: Any) -> tuple[list[Row], int]:
        """The rows; how many tasks read them. `kept`: the answer goes into the transcript."""
        found = self._driver.ask("read", self._options(options))
        rows = in_order(found["rows"])
        if kept:
            self._transcript.add("read", [_comparable(rows), found["tasks"]])
        return rows, found["tasks"]

    def write(self, rows: Sequence[Row], *columns: str, mode: str = "append", **options: Any) -> None:
        """`rows` have base64 text for bytes (`text`); `columns` are SQL expressions over them."""
        asked = {"rows": list(rows), "columns": list(columns), "mode": mode}
        self._driver.ask("write", self._options(options), **asked)

    # -- streams ----------------------------------------------------------------------------------------

    def stream(
        self,
        *,
        trigger: Mapping[str, Any] = AVAILABLE_NOW,
        name: str = "stream",
        kept: bool = True,
        **options: Any,
    ) -> Taken:
        """Run a stream that ends by itself into files. `name`: with the same one it goes on from its
        checkpoint; `kept`: its answer goes into the transcript."""
        with self.open(trigger=trigger, name=name, kept=kept, **options) as query:
            query.ended()
        return query.taken()

    def copy(self, source: str, sink: str, *, name: str = "copy", **options: Any) -> int:
        """A stream from one topic to another that ends by itself; how many records this run took."""
        options = {"subscribe": source, "includeHeaders": True, **options}
        with self.open(name=name, sink={"topic": sink}, **options) as query:
            query.ended()
        return sum(each["rows"] for each in query.batches)

    def open(
        self,
        *,
        trigger: Mapping[str, Any] = AVAILABLE_NOW,
        name: str = "stream",
        kept: bool = True,
        sink: Mapping[str, object] | None = None,
        columns: Sequence[str] = ALL_COLUMNS,
        mode: str = "append",
        **options: Any,
    ) -> Query:
        """Start a stream into files or, with options for a `sink`, into Kafka's sink."""
        directory = str(self._directory / name)
        asked: dict[str, Any] = {"directory": directory, "trigger": dict(trigger), "mode": mode}
        if sink is not None:
            asked |= {"sink": self._options(sink), "columns": list(columns)}
        number = self._driver.ask("open", self._options(options), **asked)
        return Query(self._driver, number, directory, self._transcript if kept else None)

    # -- both -------------------------------------------------------------------------------------------

    def fails(self, what: Callable[..., object], *words: Any, **options: Any) -> Failure:
        """`what` must throw; why. AssertionError when it does not."""
        try:
            done = what(*words, **options)
        except DriverFailed as failed:
            failure = Failure(failed.causes)
        else:
            pytest.fail(f"Spark did not fail but answered {done}")
        self._transcript.add("failed", kinds(failure.causes))
        return failure

    def configure(self, **settings: object) -> None:
        """Settings of the session, None takes one back."""
        named = {name.replace("__", "."): value for name, value in settings.items()}
        self._driver.ask("configure", {}, conf=named)

    def note(self, what: str, answer: Any) -> None:
        """Something a case found out otherwise, to be compared as well."""
        self._transcript.add(what, answer)

    def _options(self, options: Mapping[str, object]) -> dict[str, str]:
        """As Spark wants them: text; true and false in lower case; the rest of what is not text as JSON."""
        found = {name.replace("__", "."): value for name, value in options.items()}
        return self._servers | {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items()
        }


class Query:
    """A stream that runs. Leaving its block stops it; then `batches` and `taken()` are there."""

    def __init__(
        self, driver: LineDriver, number: int, directory: str, transcript: Transcript | None
    ) -> None:
        self._driver = driver
        self._number = number
        self._directory = directory
        self._transcript = transcript
        self.batches: list[Batch] = []

    def took(self, rows: int) -> None:
        """Wait until it has taken so many rows. DriverFailed with what broke it."""
        self._driver.ask("took", {}, query=self._number, rows=rows)

    def ended(self) -> None:
        """Wait until it has ended by itself. DriverFailed with what broke it."""
        self._driver.ask("ended", {}, query=self._number)

    def taken(self) -> Taken:
        """What its files hold, and its batches."""
        rows = in_order(self._driver.ask("rows", {}, directory=self._directory))
        if self._transcript is not None:
            self._transcript.add("rows", _comparable(rows))
        return Taken(rows, self.batches)

    def __enter__(self) -> Query:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.batches = self._driver.ask("stop", {}, query=self._number)
        if self._transcript is not None and kind is None:
            self._transcript.add("batches", self.batches)


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda each: (each["topic"], each["partition"], each["offset"]))


def _comparable(rows: list[Row]) -> list[Row]:
    """A broker's own time is not the other's."""
    return [each | {"timestamp": None} if each["timestampType"] != CREATE_TIME else each for each in rows]


def text(data: bytes) -> str:
    """Bytes as the driver takes them."""
    return base64.b64encode(data).decode()


def values(rows: Sequence[Row]) -> list[bytes]:
    return [base64.b64decode(each["value"]) for each in rows]


def places(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """(partition, offset) of each."""
    return [(each["partition"], each["offset"]) for each in rows]
