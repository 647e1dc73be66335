"""Fixtures: a case gets a running broker (both, one after the other) and a client or a bare connection.

A case is a test marked `@pytest.mark.case(area, title)`; `{name}` in the title is filled from its parameters.
A case that calls `client.needs(...)` is skipped with the client's reason where the client cannot.

What somebody else's program did (a client, Apache Kafka) is tried once more in every run when it failed, and
the run says so (decision 23).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any
from zlib import crc32

import pytest

from compat_tests import harness
from compat_tests.clients.face import CannotDo, Client
from compat_tests.connect import ConnectWorker
from compat_tests.harness import Outcome, World
from compat_tests.java_driver import ToolResult
from compat_tests.raw import RawConnection, raw_connection
from compat_tests.targets import KafkaTarget, Target
from conftest import share_of

NewTopic = Callable[..., str]

_outcomes: list[tuple[int, Outcome]] = []
"""Each with its case's place in the whole run, whichever process ran it."""
_numbers = itertools.count(1)
_PLACE = pytest.StashKey[int]()
_FROM_WORKER = "compat_outcomes"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "case(area, title): one row of the compatibility table")
    config.addinivalue_line("markers", "spark(*flags): where it runs (harness.is_left_out_of_spark)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    for place, item in enumerate(items):
        item.stash[_PLACE] = place
        words = getattr(getattr(item, "callspec", None), "params", {})
        if "client" in words or words.get("target") == KafkaTarget.name:
            item.add_marker(pytest.mark.flaky(reruns=1))


def _is_left_out(item: pytest.Item) -> bool:
    words = getattr(getattr(item, "callspec", None), "params", {})
    module = getattr(getattr(item, "module", None), "__name__", "")
    if "spark_version" in words:
        flags = {flag for mark in item.iter_markers("spark") for flag in mark.args}
        return harness.is_left_out_of_spark(str(words["target"]), str(words["spark_version"]), flags)
    clients = {str(words[each]) for each in ("client", "writer") if each in words}
    return harness.is_left_out(str(words.get("target", "")), module, clients)


@pytest.fixture(scope="session")
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World()
    yield made
    for log in made.close(failed=request.session.testsfailed > 0):
        print(f"\nbroker log kept at {log}")


@pytest.fixture(autouse=True)
def _share(request: pytest.FixtureRequest, world: World) -> None:
    """In a run of one process brokers alternate from case to case, so all stay."""
    if hasattr(request.config, "workerinput"):
        share = share_of(request.node.nodeid)
        for log in world.enter(share, failed=request.session.testsfailed > 0):
            print(f"\nbroker log kept at {log}")


@pytest.fixture(params=[pytest.param(name, id=f"on-{name}") for name in harness.wanted_targets()])
def target(request: pytest.FixtureRequest, world: World) -> Iterator[Target]:
    found = world.target(request.param)
    yield found
    assert found.running, f"the broker died during this case:\n{found.log_tail()}"


@pytest.fixture(params=list(harness.CLIENTS))
def client(request: pytest.FixtureRequest, world: World, target: Target) -> Client:
    return world.client(request.param, target.name)


@pytest.fixture
def home(request: pytest.FixtureRequest) -> int:
    """Which of several nodes a case talks to: the same in every run, and over all cases each of them."""
    return crc32(request.node.name.encode())


@pytest.fixture
def raw(target: Target, home: int) -> Iterator[RawConnection]:
    with raw_connection(target.bootstrap, home=home) as connection:
        yield connection


@pytest.fixture
def raw_2(target: Target, home: int) -> Iterator[RawConnection]:
    with raw_connection(target.bootstrap, home=home) as connection:
        yield connection


@pytest.fixture
def new_topic(raw: RawConnection) -> NewTopic:
    """`new_topic(partitions=1, configs={})` makes a topic over the wire; its unique name."""

    def make(partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        name = unique_name()
        raw.create_topic(name, partitions, configs)
        return name

    return make


@pytest.fixture
def unused_name() -> Callable[[], str]:
    return unique_name


@pytest.fixture
def tool(world: World, target: Target) -> Callable[..., ToolResult]:
    """`tool("org.apache.kafka.tools.TopicCommand", "--list")`: a Kafka tool pointed at the broker."""

    def run(main: str, *args: str, stdin: bytes = b"", bootstrap: str = "--bootstrap-server") -> ToolResult:
        return world.driver().tool(main, bootstrap, target.bootstrap, *args, stdin=stdin)

    return run


@pytest.fixture
def connect(world: World, target: Target) -> ConnectWorker:
    """The running Kafka Connect worker on the broker; all cases on that broker share it."""
    return world.connect(target.name)


def unique_name() -> str:
    return f"case-{os.getpid()}-{next(_numbers):05}"  # in the order of their names


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        return (yield)
    except CannotDo as limit:
        pytest.skip(f"{harness.LIMIT}{limit}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    case = item.get_closest_marker("case")
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if case is not None and (report.when == "call" or not report.passed) and "target" in parameters:
        outcome = _outcome(case, parameters, item, report)
        tries = getattr(item, "execution_count", 1)
        if tries > 1 and report.when == "call":  # what counts is the last try
            _outcomes[:] = [each for each in _outcomes if each[0] != item.stash[_PLACE]]
            outcome = replace(outcome, tries=tries)
        _outcomes.append((item.stash[_PLACE], outcome))
    return report


def _outcome(
    case: pytest.Mark, parameters: Mapping[str, Any], item: pytest.Item, report: pytest.TestReport
) -> Outcome:
    area, title = case.args
    fixtures = getattr(item, "fixturenames", ())
    column = next((name for each, name in harness.COLUMNS.items() if each in fixtures), harness.WIRE)
    if "spark_version" in parameters:
        column = harness.SPARKS[parameters["spark_version"]]
    client = str(parameters.get("client", column))
    if report.passed:
        result, reason = harness.PASSED, ""
    elif report.skipped:
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        result = harness.LIMITED if reason.startswith(harness.LIMIT) else harness.MISSING
        reason = reason.removeprefix(harness.LIMIT)
    else:
        lines = report.longreprtext.strip().splitlines()
        result, reason = harness.FAILED, next((x[2:] for x in lines if x.startswith("E ")), lines[-1])
    title = title.format(**parameters)
    return Outcome(area, title, client, parameters["target"], result, reason.strip(), report.duration)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of several processes has ended: its outcomes are ours."""
    for place, outcome in getattr(node, "workeroutput", {}).get(_FROM_WORKER, ()):
        _outcomes.append((place, Outcome(**outcome)))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    worker_output = getattr(session.config, "workeroutput", None)
    if worker_output is not None:
        worker_output[_FROM_WORKER] = [(place, asdict(outcome)) for place, outcome in _outcomes]
    elif _outcomes:
        found = [outcome for _, outcome in sorted(_outcomes, key=lambda each: each[0])]
        harness.save(found)
        option = session.config.option
        narrowed = (option.keyword, option.markexpr, option.deselect, option.ignore, option.ignore_glob)
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if ended and harness.is_whole(session.config.args, *narrowed):
            harness.save(found, harness.WHOLE_RESULTS)
