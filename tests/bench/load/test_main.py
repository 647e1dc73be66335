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
