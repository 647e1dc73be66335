"""A Spark run: it alternates, and keeps what was warm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import runner
from bench.machine import facts, memory
from bench.page.document import page, read
from bench.spark import command
from bench.spark.command import Spark
from compat_tests.line_driver import DriverFailed
from compat_tests.spark_driver import JARS


class _Broker:
    def __init__(self, name: str) -> None:
        self.bootstrap = name

    def __enter__(self) -> _Broker:
        return self

    def __exit__(self, *words: object) -> None:
        pass


class _Spark:
    """Answers as the driver does; the Apache Kafka that was just started is slow once."""

    def __init__(self, *words: Any) -> None:
        self.seen: list[str] = []

    def ask(self, what: str, settings: object, **fields: Any) -> Any:
        self.seen.append(what)
        if what == "read":
            cold = fields["bootstrap"] not in self.seen
            self.seen.append(fields["bootstrap"])
            return {"records": 100, "bytes": 100_000, "seconds": 9.0 if cold else 2.0}
        if what == "write":
            return {"records": fields["records"], "seconds": 1.0 if fields["format"] == "lockstep" else 2.0}
        own = fields["format"] == "kafka"
        return {"commits": [] if own else [9.0] * 5 + [0.01] * 3, "epochs": [9.0] * 5 + [0.1] * 3}

    def close(self) -> None:
        self.seen.append("closed")


def test_a_run_alternates_and_keeps_what_was_warm_by_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[str] = []

    def target(run: command.Run, kind: str, name: str) -> _Broker:
        order.append(name)
        return _Broker(name)

    monkeypatch.setattr(command, "LineDriver", _Spark)
    monkeypatch.setattr(command, "installed", lambda: Path("python"))
    monkeypatch.setattr(type(JARS), "jars", lambda jars: [])
    monkeypatch.setattr(command.Run, "target", target)
    monkeypatch.setattr(command, "fill", lambda *words: 100)
    monkeypatch.setattr(command, "ClusterClient", _Broker)
    monkeypatch.setattr(command, "create", lambda *words: None)
    monkeypatch.setattr(memory, "kept", lambda parent: {})
    where = ["--out", str(tmp_path / "kept")]
    assert runner.main(Spark, ["--rounds", "2", "--records", "100", *where]) == 0
    assert order == [
        *("source-0-lockstep", "source-0-kafka", "source-1-kafka", "source-1-lockstep", "sink"),
    ]
    (kept,) = (tmp_path / "kept").iterdir()
    result = read(kept)
    assert result.keys() == {
        *("format", "kind", "command", "sizes", "started", "code", "machine", "memory_kept", "failures"),
        *("records", "record_bytes", "rounds", "quick", "seconds", "ratios"),
    }
    assert result["seconds"]["source.kafka.kafka.1"] == [[2.0, 2.0], [2.0, 2.0]], "9.0 was cold"
    assert result["seconds"]["sink.kafka"] == [[2.0]] * 4 and result["seconds"]["commit"] == [[0.01] * 3]
    values = {row["ratio"]: row["value"] for row in result["ratios"]}
    assert values["source.stock.8"] == pytest.approx(1.0) and values["sink"] == pytest.approx(2.0)
    assert values["commit_ms"] == pytest.approx(10.0) and "## Spark" in page([result])
    assert "our exactly-once sink" in capsys.readouterr().out

    digests = iter("ab")
    with pytest.MonkeyPatch.context() as changing:
        changing.setattr(facts, "sources", lambda: next(digests))
        assert runner.main(Spark, ["--source", "--rounds", "1", "--records", "100", *where]) == 1
    assert "FAILED: the sources changed" in capsys.readouterr().err

    def slow(spark: _Spark, what: str, settings: object, **fields: Any) -> Any:
        raise DriverFailed("no answer")

    monkeypatch.setattr(_Spark, "ask", slow)
    assert runner.main(Spark, ["--source", *where]) == 1 and "FAILED: no answer" in capsys.readouterr().err
    ratios = [read(each)["ratios"] for each in (tmp_path / "kept").iterdir() if each != kept]
    assert sorted(map(len, ratios)) == [0, 4], "of a run that failed there is no figure"
