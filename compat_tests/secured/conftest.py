"""Fixtures: a secured broker, and each client with the login that a case names."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from compat_tests import harness
from compat_tests.clients.face import Client
from compat_tests.clients.java import java_words
from compat_tests.conftest import unique_name
from compat_tests.harness import World
from compat_tests.java_driver import ToolResult
from compat_tests.kafka_jars import STREAMS, ToolchainMissing, skip_or_fail
from compat_tests.secured.brokers import CERTIFIED, LOGIN, ClientConnection, SecuredTarget
from compat_tests.secured.reasons import FAILURES
from tests.campaigns import java_programs

MTLS = "mTLS"
STOP_S = 40.0


@pytest.fixture(params=[pytest.param(name, id=f"on-{name}") for name in harness.wanted_targets()])
def target(request: pytest.FixtureRequest, world: World) -> Iterator[SecuredTarget]:
    found = world.secured(request.param)
    yield found
    assert found.running, f"the broker died during this case:\n{found.log_tail()}"


@pytest.fixture
def login() -> str:
    """The login of a case's client: mTLS, "MECHANISM as USER" (alice), or one of `FAILURES`."""
    return "SCRAM-SHA-512"


@pytest.fixture(params=list(harness.CLIENTS))
def client(request: pytest.FixtureRequest, world: World, target: SecuredTarget, login: str) -> Client:
    kind = harness.CLIENTS[request.param]
    found = connection_of(target, login)
    mechanism = found.security.mechanism
    if mechanism in kind.cannot:
        pytest.skip(f"{harness.LIMIT}{kind.cannot[mechanism]}")
    return world.connected(request.param, target.bootstrap_of(found.listener), found.security)


def connection_of(target: SecuredTarget, login: str) -> ClientConnection:
    own = target.credentials
    if login in FAILURES:
        return FAILURES[login](own)
    if login == MTLS:
        return ClientConnection(CERTIFIED, own.certified(own.client))
    mechanism, _, user = login.partition(" as ")
    return ClientConnection(LOGIN, own.login(mechanism, user or "alice"))


@pytest.fixture
def tool(world: World, target: SecuredTarget, login: str, tmp_path: Path) -> Callable[..., ToolResult]:
    """`tool("org.apache.kafka.tools.TopicCommand", "--list")`: a tool of Kafka with the case's login, or
    logged in as `user`."""

    def run(main: str, *args: str, user: str = "", password: str = "", stdin: bytes = b"") -> ToolResult:
        found = connection_of(target, login)
        if user:
            found = ClientConnection(LOGIN, target.credentials.login("SCRAM-SHA-512", user, password))
        words = java_words(found.security)
        config = tmp_path / "client.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in words.items()))
        where = ("--bootstrap-server", target.bootstrap_of(found.listener), "--command-config", str(config))
        return world.driver().tool(main, *where, *args, stdin=stdin)

    return run


@pytest.fixture
def word_count(target: SecuredTarget, login: str, tmp_path: Path) -> Iterator[Callable[[str, str], str]]:
    """`word_count(lines, counts)` starts an application of Kafka Streams, which has the case's login and
    runs until the case ends; its application.id."""
    application, log = unique_name(), tmp_path / "streams.log"
    found, config = connection_of(target, login), tmp_path / "streams.properties"
    words = {**java_words(found.security), "application.id": application}
    config.write_text("".join(f"{name}={value}\n" for name, value in words.items()))
    with ExitStack() as stack:

        def start(lines: str, counts: str) -> str:
            where = [target.bootstrap_of(found.listener), lines, counts, str(tmp_path / "state"), str(config)]
            try:
                command = java_programs.java("WordCount", where, STREAMS, heap="256M")
            except ToolchainMissing as missing:
                skip_or_fail(str(missing))
                raise
            output = stack.enter_context(log.open("wb"))
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
            stack.callback(_stop, process)
            return application

        yield start
    print(log.read_text(errors="replace")[-4000:] if log.exists() else "", end="")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
