"""The command as a process: fast to start, quiet to end, and told what hides its packages."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from lockstep.cli import parser
from lockstep.testing import RunningBroker, broker_in_thread
from tests.support.cases import each_case

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "lockstep"]


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **extra}


def run(
    *arguments: str, stdin: bytes = b"", cwd: Path | None = None, **extra: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        env=environment(**extra),
        cwd=cwd,
    )


def test_help_is_instant_and_names_every_command() -> None:
    used = []
    for _ in range(3):
        before = os.times()
        done = run("--help")
        after = os.times()
        used.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    assert done.returncode == 0
    assert all(name in done.stdout.decode() for name in ("serve", "topics", "produce", "consume", "log"))
    assert min(used) < 0.2, "seconds of processor time"


def test_the_start_imports_nothing_heavy() -> None:
    code = (
        "import sys, lockstep.cli as cli; cli.parser(); "
        "print([name for name in ('asyncio', 'uvloop', 'cramjam', 'lockstep.broker', 'lockstep.storage', "
        "'lockstep.protocol', 'json', 'tabulate', 'importlib.metadata') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), check=True)
    assert done.stdout.decode().strip() == "[]"


def test_version() -> None:
    done = run("--version")
    assert done.returncode == 0 and done.stdout.startswith(b"lockstep ")
    assert run("--version", LOCKSTEP_PURE="1").stdout.endswith(b", pure Python (LOCKSTEP_PURE is set)\n")


def test_a_missing_package_is_one_line(tmp_path: Path) -> None:
    """As after an update of the clone alone, without its requirements."""
    (tmp_path / "cryptography.py").write_text("raise ModuleNotFoundError(name='cryptography')\n")
    directory = str(tmp_path / "certs")
    done = run(
        "certs", "create", "--nodes", "1=localhost", "--directory", directory, PYTHONPATH=f"{tmp_path}:{ROOT}"
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().startswith("lockstep: the package cryptography is missing: run `make setup`")
    assert done.stderr.count(b"\n") == 1


def test_modules_with_our_folders_names_hide_nothing(tmp_path: Path) -> None:
    """An application may have a `broker.py` or a `storage/` of its own, whichever Python finds first."""
    for name in ("protocol.py", "broker.py", "storage/__init__.py", "player/__init__.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("raise ImportError('not Lockstep's')\n")
    code = (
        "import lockstep.broker.server, lockstep.player.driver.driver, lockstep.transactions, lockstep.sql\n"
        "from lockstep.cli import main; main(['--help'])"
    )
    where = environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=where, cwd=tmp_path)
    assert done.returncode == 0 and b"serve" in done.stdout, done.stderr.decode()


def test_what_goes_in_comes_out(running: RunningBroker, topic: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(50_000))
    bootstrap = ("--bootstrap", running.bootstrap_servers)
    produced = run("produce", topic, *bootstrap, stdin=lines)
    assert (produced.returncode, produced.stdout, produced.stderr) == (0, b"", b"")
    assert run("consume", topic, *bootstrap, "--from-beginning").stdout == lines


def test_lines_are_sent_as_they_are_typed(running: RunningBroker, topic: str) -> None:
    bootstrap = ("--bootstrap", running.bootstrap_servers)
    assert run("topics", "create", topic, *bootstrap).returncode == 0
    consumer = subprocess.Popen(
        [*COMMAND, "consume", topic, *bootstrap, "--from-beginning", "--follow"],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    producer = subprocess.Popen(
        [*COMMAND, "produce", topic, *bootstrap], stdin=subprocess.PIPE, env=environment()
    )
    try:
        assert producer.stdin is not None and consumer.stdout is not None
        for text in (b"one\n", b"two\n"):
            producer.stdin.write(text)
            producer.stdin.flush()
            assert consumer.stdout.readline() == text, "before the input ends"
        producer.stdin.close()
        assert producer.wait(10) == 0
        consumer.send_signal(signal.SIGINT)
        assert consumer.wait(10) == 130
    finally:
        for process in (consumer, producer):
            process.kill()
            process.wait()
        assert consumer.stdout is not None
        consumer.stdout.close()


def test_a_consumer_outlives_its_leader(topic: str, tmp_path: Path) -> None:
    with broker_in_thread(data_dir=tmp_path) as first:
        port = first.port
        bootstrap = ("--bootstrap", first.bootstrap_servers)
        run("produce", topic, *bootstrap, stdin=b"before\n")
        consumer = subprocess.Popen(
            [*COMMAND, "consume", topic, *bootstrap, "--from-beginning", "--follow"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        assert consumer.stdout is not None and consumer.stdout.readline() == b"before\n"
    try:
        with broker_in_thread(data_dir=tmp_path, listeners=f"PLAINTEXT://localhost:{port}"):
            run("produce", topic, *bootstrap, stdin=b"after\n")
            assert consumer.stdout.readline() == b"after\n", "and nothing again"
            consumer.send_signal(signal.SIGINT)
            assert consumer.communicate(timeout=10) == (b"", b"")
            assert consumer.returncode == 130
    finally:
        consumer.kill()
        consumer.communicate()


def test_ctrl_c_leaves_no_traceback(running: RunningBroker, topic: str) -> None:
    bootstrap = ("--bootstrap", running.bootstrap_servers)
    run("topics", "create", topic, *bootstrap)
    consumer = subprocess.Popen(
        [*COMMAND, "consume", topic, *bootstrap, "--from-beginning", "--follow", "-v"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    run("produce", topic, *bootstrap, stdin=b"one\n")
    assert consumer.stdout is not None
    consumer.stdout.readline()  # it waits for more by now
    consumer.send_signal(signal.SIGINT)
    assert consumer.communicate(timeout=10) == (b"", b"")
    assert consumer.returncode == 130


def test_a_reader_that_leaves_early_is_no_error(running: RunningBroker, topic: str) -> None:
    bootstrap = ("--bootstrap", running.bootstrap_servers)
    run("produce", topic, *bootstrap, stdin=b"some line of text\n" * 100_000)
    line = " ".join([*COMMAND, "consume", topic, *bootstrap, "--from-beginning"])
    done = subprocess.run(
        ["bash", "-c", f"{line} | head -1; exit ${{PIPESTATUS[0]}}"], capture_output=True, env=environment()
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"some line of text\n", b"")


def test_output_that_finds_no_room_is_one_line(running: RunningBroker, topic: str) -> None:
    bootstrap = ("--bootstrap", running.bootstrap_servers)
    run("topics", "create", topic, *bootstrap)
    line = " ".join([*COMMAND, "topics", "list", *bootstrap])
    done = subprocess.run(["bash", "-c", f"{line} > /dev/full"], capture_output=True, env=environment())
    assert (done.returncode, done.stderr) == (1, b"lockstep: no space left on device\n")


def test_a_broker_that_goes_ends_the_producer_at_once(running: RunningBroker, topic: str) -> None:
    """Although its standard input is still open."""
    producer = subprocess.Popen(
        [*COMMAND, "produce", topic, "--bootstrap", "localhost:1"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert producer.wait(20) == 1
    assert producer.stdin is not None and producer.stderr is not None
    assert b"connection refused" in producer.stderr.read()
    producer.stdin.close()
    producer.stderr.close()


@each_case(
    ("arguments", "usage"),
    [
        (("consume", "t", "--from-begining"), "lockstep consume"),
        (("topics", "create", "t", "--partitons", "3"), "lockstep topics create"),
        (("topics", "-x", "list"), "lockstep topics"),
        (("log", "dump", "d", "e"), "lockstep log dump"),
        (("--nothing", "consume", "t"), "lockstep"),
    ],
)
def test_a_typo_shows_the_usage_of_its_command(arguments: tuple[str, ...], usage: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    said = done.stderr.decode()
    assert said.startswith(f"usage: {usage} [-h]") and f"{usage}: error: unrecognized arguments" in said


def test_a_dump_ends_quietly_when_nobody_reads_on(tmp_path: Path) -> None:
    with broker_in_thread(data_dir=tmp_path / "data", log_flush="os") as broker:
        for _ in range(3):
            assert run("produce", "t", "-b", broker.bootstrap_servers, stdin=b"x\n" * 1000).returncode == 0
    process = subprocess.Popen(
        [*COMMAND, "log", "dump", str(tmp_path / "data"), "--records"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(PYTHONUNBUFFERED="1"),
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline().startswith(b"group 0 ")
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(20), said) == (0, b"")


def test_each_command_has_an_opening_sentence_and_each_argument_a_help() -> None:
    def subcommands(command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
        found = [each for each in command._actions if isinstance(each, argparse._SubParsersAction)]
        return dict(found[0].choices) if found else {}

    for name, family in subcommands(parser()).items():
        assert (family.description or "").endswith("."), name
        for command in (family, *subcommands(family).values()):
            for each in command._actions:
                if not isinstance(each, argparse._SubParsersAction):
                    assert each.help, f"{command.prog}: {each.dest}"
    done = run("quotas", "set", "--help")
    assert b"lockstep quotas set --user alice producer_byte_rate=" in done.stdout
