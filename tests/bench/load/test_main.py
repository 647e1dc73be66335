"""The command of the load generator: jobs by name, results and failures as JSON."""

from __future__ import annotations

import inspect
import json
from importlib import import_module

import pytest

from bench.load.__main__ import JOBS, main


@pytest.mark.parametrize(("name", "module"), JOBS.items())
def test_every_job_is_where_it_is_said_to_be(name: str, module: str) -> None:
    function = getattr(import_module(module), name)
    assert function.__module__ == module and list(inspect.signature(function).parameters) == ["job"]


def test_a_job_that_fails_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    job = {"job": "first_ack", "host": "127.0.0.1", "port": 1, "topic": "t", "record_bytes": 1}
    assert main([json.dumps({**job, "timeout_s": 0.05})]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said == {"error": "WrongAnswer: no record acknowledged within 0.05 s"}


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("words", [[], ["{}", "{}"], ["{"]])
def test_what_is_no_job_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
