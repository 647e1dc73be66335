"""Real clients as load: whole transactions, timed."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from pathlib import Path

import pytest

from bench.load.__main__ import JOBS, main
from bench.load.clients import client_transactions
from compat_tests.probe import HOST
from compat_tests.raw import RawConnection
from compat_tests.targets import LockstepTarget
from tests.support.cases import each_case


def test_a_client_times_whole_transactions(tmp_path: Path) -> None:
    with LockstepTarget(directory=tmp_path) as target:
        with RawConnection(HOST, target.port) as raw:
            raw.create_topic("t", 3)
        job = {"topic": "t", "bootstrap": target.bootstrap, "partitions": 3, "record_bytes": 100}
        result = client_transactions({**job, "seconds": 0.6, "warmup_s": 0.2})
        with RawConnection(HOST, target.port) as raw:
            ends = [raw.list_offset("t", -1, partition=index)["offset"] for index in range(3)]
    assert result["total_transactions"] > 2
    assert sum(ends) == result["total_records"] == 6 * result["total_transactions"]
    assert 0 < result["commit_p50_ms"] <= result["p50_ms"] <= result["p99_ms"]


@each_case(("name", "module"), JOBS.items())
def test_every_job_is_in_its_module(name: str, module: str) -> None:
    function = getattr(import_module(module), name)
    assert function.__module__ == module and list(inspect.signature(function).parameters) == ["job"]


def test_a_job_that_fails_reports_that(capsys: pytest.CaptureFixture[str]) -> None:
    job = {"job": "first_ack", "host": "127.0.0.1", "port": 1, "topic": "t", "record_bytes": 1}
    assert main([json.dumps({**job, "timeout_s": 0.05})]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said == {"error": "UnexpectedResponse: no record acknowledged within 0.05 s"}


@each_case(
    ("job", "error"),
    [
        ({"job": "nope"}, "there is no job 'nope', but hold_connections, "),
        ({"job": "fill"}, "the job lacks the word 'records'"),
        ({}, "the job lacks the word 'job'"),
    ],
)
def test_words_that_mean_nothing_are_named(
    job: dict[str, object], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([json.dumps(job)]) == 1
    assert error in json.loads(capsys.readouterr().out)["error"]


@each_case("words", [[], ["{}", "{}"], ["{"]])
def test_what_is_no_job_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
