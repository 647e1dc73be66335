"""`lockstep serve`: one process, one line when ready, refusals in words."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from compat_tests import fork_server
from compat_tests.probe import free_port

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "lockstep"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@contextmanager
def served(
    *arguments: str, start: Callable[..., subprocess.Popen[str]] = fork_server.popen
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker process and the address in its line."""
    process = start(
        [*COMMAND, "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        found = re.search(r" ready, serving clients on (\S+:\d+)", line)
        assert found is not None, line + process.stderr.read()
        yield process, found[1]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_help_names_the_option_of_the_peer_listener() -> None:
    done = subprocess.run([*COMMAND, "serve", "--help"], capture_output=True, text=True, env=ENVIRONMENT)
    peers = done.stdout.rpartition("--peers LIST")[2].partition("--config FILE")[0]
    assert "lockstep.peers.listener=HOST:PORT" in peers


def failed(*arguments: str, status: int = 1) -> str:
    command = [*COMMAND, "serve", *arguments]
    done = fork_server.run(command, text=True, timeout_s=30, env=ENVIRONMENT)
    assert done.returncode == status, done
    assert done.stdout == "" and "Traceback" not in done.stderr
    return str(done.stderr)


def await_listening(port: int) -> None:
    until = time.monotonic() + 15
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < until, "it does not listen"
            time.sleep(0.05)


def run(*arguments: str, stdin: str = "") -> str:
    command = [*COMMAND, *arguments]
    done = fork_server.run(command, given=stdin, text=True, timeout_s=30, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_a_start_with_closed_standard_streams(closed: tuple[int, ...], tmp_path: Path) -> None:
    port = free_port()
    where = ("--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}")
    script = 'exec "$@" ' + " ".join(f"{each}>&-" for each in closed)
    process = subprocess.Popen(
        ["sh", "-c", script, "sh", *COMMAND, "serve", *where],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    try:
        await_listening(port)
        run("produce", "t", "-b", f"127.0.0.1:{port}", stdin="one\n")
        opened = [os.readlink(f"/proc/{process.pid}/fd/{each}") for each in range(3)]
        assert opened == ["/dev/null"] * 3, "no file of the log has the number of a standard stream"
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.wait()


def test_kill_9_loses_nothing_acknowledged_and_sigterm_stops_cleanly(tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    with served(*where, start=subprocess.Popen) as (process, address):
        assert psutil.Process(process.pid).children() == [], "one process, no wrapper"
        run("produce", "t", "-b", address, stdin="one\ntwo\n")
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    with served(*where) as (process, address):
        assert run("consume", "t", "-b", address, "--from-beginning") == "one\ntwo\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_settings_come_from_a_file_then_from_set(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("num.partitions=3\nmessage.max.bytes=20000\n")
    where = ("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    with served(*where, "--config", str(config), "--set", "num.partitions=5") as (_, address):
        run("topics", "create", "t", "-b", address)
        described = run("topics", "describe", "t", "-b", address, "--all-configs")
    assert "max.message.bytes=20000" in described
    assert described.splitlines()[-1].startswith("4 ")


def test_a_port_in_use_is_reported_in_words(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = failed("--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}")
    assert f"port {port} is in use" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "no.such.setting=1"), "there is no such setting"),
        (("--set", "num.partitions"), "key=value"),
        (("--set", "num.partitions=many"), "num.partitions=many"),
        (("--listen", "nonsense"), "HOST:PORT"),
        (("--listen", "9092"), "HOST:PORT"),
        (("--config", "/no/such/file.properties"), "cannot read /no/such/file.properties: no such file"),
    ],
)
def test_bad_settings_are_one_line(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    said = failed("--data-dir", str(tmp_path / "data"), *arguments, status=2)
    assert words in said and said.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_bytes(b"num.partitions=\xff\xfe\n")
    assert "not a text file" in failed("--config", str(config), status=2)
    config.write_bytes(b"num.partitions=\\u12\n")
    assert f"--config={config}: " in failed("--config", str(config), status=2)


@pytest.mark.parametrize("text", ["lockstep.peers={file}", "num.partitions=${{here:{file}:count}}"])
def test_a_file_that_a_setting_names_may_be_there_later(tmp_path: Path, text: str) -> None:
    """Its absence is no wrong usage; its content may be."""
    file = tmp_path / "file"
    provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    sets = ("config.providers=here", f"config.providers.here.class={provider}", text.format(file=file))
    arguments = ["--data-dir", str(tmp_path / "data"), *(word for each in sets for word in ("--set", each))]
    assert f"{file}" in failed(*arguments, status=1)
    file.write_text("count=many\n")
    failed(*arguments, status=2)
    assert not (tmp_path / "data").exists()


def test_two_brokers_cannot_share_a_directory(tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    with served(*where):
        assert "another Lockstep" in failed(*where)


def test_a_directory_of_a_newer_metadata_version_is_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("format=2\nnode.id=1\npart=alone\nmetadata.version=999\n")
    said = failed("--data-dir", str(data), "--listen", "127.0.0.1:0", status=1)
    assert "the cluster's metadata have version 999, this Lockstep supports up to" in said
    assert "Traceback" not in said


def test_a_second_start_goes_on(tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    with served(*where) as (_, address):
        run("produce", "t", "-b", address, stdin="one\n")
    with served(*where) as (_, address):
        run("produce", "t", "-b", address, stdin="two\n")
        assert run("consume", "t", "-b", address, "--from-beginning").split() == ["one", "two"]


def test_a_player_that_cannot_be_is_refused_before_the_broker_starts(tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    config = tmp_path / "player.toml"
    assert f"cannot read {config}" in failed(*where, "--set", f"lockstep.player.config={config}")
    config.write_text('player = "p"\ntopic = "t"\n')
    of_player = ("--set", f"lockstep.player.config={config}")
    assert "player.toml: route: is missing" in failed(*where, *of_player, status=2)
    config.write_text(
        'player = "p"\ntopic = "t"\nroute = {by = "all"}\ntargets = {a = {address = "h:1"}}\n'
        '[tls]\ntrusted = "nowhere.pem"\n'
    )
    assert "player.toml: tls: cannot read nowhere.pem" in failed(*where, *of_player)
    assert not (tmp_path / "data").exists()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config.write_text(
            f'player = "p"\ntopic = "t"\nlisten = "127.0.0.1:{port}"\n[route]\nby = "header"\n'
            '[targets.a]\naddress = "127.0.0.1:1"\n'
        )
        said = failed(*where, "--set", f"lockstep.player.config={config}")
        assert f"cannot start: the player: port {port} is in use" in said


def test_serves_and_plays(tmp_path: Path) -> None:
    config = tmp_path / "player.toml"
    port = free_port()
    config.write_text(
        f'player = "p"\ntopic = "t"\nlisten = "127.0.0.1:{port}"\n[route]\nby = "header"\n'
        '[targets.a]\naddress = "127.0.0.1:1"\n'
    )
    where = ("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    with served(*where, "--set", f"lockstep.player.config={config}") as (process, address):
        run("topics", "create", "t", "-b", address)
        deadline = time.monotonic() + 30
        while not (logs := player_status(port)["logs"]):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert [(each["partition"], each["is_playing"]) for each in logs] == [(0, True)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def player_status(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_a_listener_without_a_possible_host_name_is_named(host: str) -> None:
    said = failed("--listen", f"{host}:19092", status=2)
    assert said.startswith(f"lockstep: listeners={host}:19092: no host name: ")


def test_too_many_processes_are_rejected_before_their_settings_are_checked() -> None:
    began = time.monotonic()
    assert "the number of processes is 1 to 64" in failed("--processes", "100000", status=2)
    assert time.monotonic() - began < 20
