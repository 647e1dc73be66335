"""What a session does with what goes wrong: missing records, blocks tried again, an interrupted run."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from confluent_kafka import KafkaException

from bench import __main__ as command
from bench.ending import SIGNALS, not_now
from bench.full.children import ended
from bench.machine import device, facts, process
from bench.machine.device import NoBlockDevice
from bench.running import comparison
from bench.sessions import session
from bench.sessions.failures import RoundFailed, WrongCount
from bench.sessions.jobs import Block
from bench.sessions.session import Session
from bench.settings import FLUSH, QUICK
from compat_tests.kafka_jars import ToolchainMissing
from tests.bench.load.serving import serving
from tests.bench.load.test_wire import produce_response


class Told(Session):
    """A session of no broker: it holds what it is told to."""

    def __init__(self, stored: int) -> None:
        self.side, self.kind, self.policies = "subject", "lockstep", (FLUSH,)
        self.blocks, self.again = [], []
        self.stored = stored

    def topic(self, policy: str, partitions: int = 1) -> str:
        return "topic"

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        return [self.stored]

    def observe(self, name: str, policy: str, work: Any, *, max_outstanding: int) -> Block:
        block: Block = {"name": name, "policy": policy, "figures": work()}
        self.blocks.append(block)
        return block


def _measured(told: Told) -> Block:
    return told.measure("work", FLUSH, lambda topic: {"total_records": 10}, max_outstanding=1)


def test_a_blocks_own_work_warms_it_up_until_the_compiler_is_through(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(0)
    told.sizes, told.target = replace(QUICK, kind_warmup_max_s=60.0), cast(Any, SimpleNamespace(pids=[1]))
    compiled, worked, now = [0.0], [0], [0.0]

    def work() -> None:
        worked[0] += 1
        now[0] += 1.0
        if told.kind == "kafka":
            compiled[0] += 0.5 if worked[0] < 4 else 0.01

    monkeypatch.setattr(process, "compiler_seconds", lambda pid: compiled[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    told.warm(work)
    assert worked == [1], "nothing compiles in a Lockstep"
    told.kind, worked[0] = "kafka", 0
    told.warm(work)
    assert worked == [4]
    told.sizes, worked[0] = replace(QUICK, kind_warmup_max_s=2.0), 0
    told.warm(work)
    assert worked == [2], "it ends in any case"


def test_acknowledged_records_that_are_missing_leave_no_block_and_are_not_tried_away() -> None:
    told = Told(9)
    with pytest.raises(WrongCount, match="10 records acknowledged, 9 in topic"):
        told.once_more("work", lambda: _measured(told))
    assert told.blocks == [] and told.again == []
    whole = Told(10)
    assert whole.once_more("work", lambda: _measured(whole))["topic"] == "topic"


def test_records_that_cannot_be_counted_leave_no_block() -> None:
    class Silent(Told):
        def end_offsets(self, topic: str, partitions: int) -> list[int]:
            raise RoundFailed("no end offsets")

    told = Silent(10)
    with pytest.raises(RoundFailed):
        _measured(told)
    assert told.blocks == []


def test_where_flushes_cannot_be_counted_nothing_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(directory: Path) -> str:
        raise NoBlockDevice("no disk")

    monkeypatch.setattr(device, "device_of", refused)
    with pytest.raises(NoBlockDevice):
        Session("subject", "lockstep", (FLUSH,), QUICK, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_cannot_be_made_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(self: Session, tree: Path | None) -> NoReturn:
        (self.directory / "begun").touch()
        raise ToolchainMissing("no Java")

    monkeypatch.setattr(device, "device_of", lambda directory: "vda")
    monkeypatch.setattr(Session, "_make_target", missing)
    with pytest.raises(ToolchainMissing):
        Session("subject", "kafka", (FLUSH,), QUICK, tmp_path)
    assert list(tmp_path.iterdir()) == []


class WithJobs(Told):
    """A session whose jobs are real and whose broker is a small server."""

    def __init__(self, port: int, directory: Path) -> None:
        super().__init__(0)
        self.sizes, self.directory, self._jobs = QUICK, directory, {}
        self.target = cast(Any, SimpleNamespace(port=port, pids=[os.getpid()], close=lambda: None))


def test_connections_that_are_not_held_to_the_end_fail_their_round(tmp_path: Path) -> None:
    with serving(lambda number, _: [bytes(produce_response(b"t", number, [0]))]) as port:
        told = WithJobs(port, tmp_path / "data")
        with told.held_connections(2):
            pass
        assert not told._jobs
        with pytest.raises(RoundFailed), told.held_connections(2):
            next(iter(told._jobs)).kill()
        with pytest.raises(ZeroDivisionError), told.held_connections(2):
            raise ZeroDivisionError
        told.close()


def test_a_session_that_ends_leaves_no_job_behind(tmp_path: Path) -> None:
    told = WithJobs(1, tmp_path / "data")
    child = told.start_job("first_ack", topic="t", timeout_s=60.0)
    told.close()
    assert child.poll() == -signal.SIGKILL


def test_what_is_wrong_with_the_machine_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(words: list[str]) -> NoReturn:
        raise OSError(28, "No space left on device", "a.json")

    monkeypatch.setitem(command.TOOLS, "micro", full)
    assert command.main(["micro"]) == 1
    assert "FAILED: [Errno 28] No space left on device: 'a.json'" in capsys.readouterr().err


def test_what_is_tried_once_more_is_noted_and_fails_the_second_time() -> None:
    told, tries = Told(10), iter([RoundFailed("the leader moved")])

    def work() -> str:
        for error in tries:
            raise error
        return "done"

    assert told.once_more("work", work) == "done"
    assert told.again == ["work: the leader moved"]

    def never() -> None:
        raise RoundFailed("still not")

    with pytest.raises(RoundFailed, match="still not"):
        told.once_more("more", never)


def test_a_client_library_that_fails_ends_a_session_and_not_the_run() -> None:
    class Closed(Told):
        def close(self) -> None:
            closed.append(self)

        def log_tail(self) -> str:
            return "its log"

        def unproven(self) -> list[str]:
            return []

        def outcome(self) -> Block:
            return {"blocks": self.blocks}

    closed: list[Session] = []

    def measure(number: int, each: Closed) -> None:
        if number == 0:
            raise KafkaException("no answer")
        _measured(each)

    sessions, failures = comparison.run_sessions([0, 1], lambda number: Closed(10), measure)
    assert len(closed) == 2 and [len(each["blocks"]) for each in sessions] == [0, 1]
    assert len(failures) == 1 and "no answer" in failures[0]


def test_a_tool_that_does_not_end_fails_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "java_command", lambda: sys.executable)
    monkeypatch.setattr(session, "JOB_TIMEOUT_S", 0.2)
    monkeypatch.setattr(session, "classpath", lambda: "")
    monkeypatch.setattr(session, "JAVA_OPTIONS", ("-c", "import time; time.sleep(30)"))
    with pytest.raises(RoundFailed, match="did not end within"):
        Told(0).run_java("Main", [])


@pytest.fixture
def handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_unwinds_and_a_second_one_does_not_cut_that_short(
    number: signal.Signals,
    handlers: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    unwound: list[str] = []

    def tool(words: list[str]) -> int:
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        finally:
            for each in SIGNALS:
                os.kill(os.getpid(), each)
            time.sleep(0.01)
            unwound.append("yes")
        return 0

    def not_handled(*_: object) -> None:
        unwound.append("no")

    monkeypatch.setitem(command.TOOLS, "baselines", tool)
    for each in SIGNALS:
        signal.signal(each, not_handled)
    with pytest.raises(SystemExit) as ended_with:
        command.main(["baselines"])
    assert unwound == ["yes"] and ended_with.value.code == 128 + number
    assert f"ended by {number.name}: what was under way is not kept" in capsys.readouterr().err
    assert {signal.getsignal(each) for each in SIGNALS} == {not_handled}, "as before"


def test_what_was_ignored_stays_ignored(handlers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def tool(words: list[str]) -> int:
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.01)
        return 7

    monkeypatch.setitem(command.TOOLS, "baselines", tool)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert command.main(["baselines"]) == 7


def test_a_signal_waits_until_a_session_has_tidied_up(handlers: None) -> None:
    told: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: told.append("told"))
    with not_now():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        assert told == []
    assert told == ["told"]


def test_a_command_within_is_asked_to_end_and_not_killed(handlers: None, tmp_path: Path) -> None:
    mark, ready = tmp_path / "mark", tmp_path / "ready"
    program = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(mark)!r}).touch(), sys.exit(0)))\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(60)\n"
    )

    def interrupt(number: int, frame: object) -> None:
        if not ready.exists():
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(KeyboardInterrupt):
        ended([sys.executable, "-c", program], tmp_path)
    assert mark.exists()
    assert ended([sys.executable, "-c", "raise SystemExit(3)"], tmp_path) == 3


def test_sources_that_change_while_a_run_lasts_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    digests = iter(["a", "a", "a", "b"])
    monkeypatch.setattr(facts, "sources", lambda: next(digests))
    monkeypatch.setattr(facts, "machine_facts", lambda parent: {})
    options = argparse.Namespace(directory=tmp_path, quick=True)
    same = comparison.performed(options, lambda parent: ([], []))
    assert same is not None and same["failures"] == []
    changed = comparison.performed(options, lambda parent: ([], ["session 1: broke"]))
    assert changed is not None
    assert changed["failures"][0] == "session 1: broke" and "sources changed" in changed["failures"][1]


def test_a_commits_modules_and_changes_to_them_are_its_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(facts, "ROOT", tmp_path)
    module, page = tmp_path / "broker" / "server.py", tmp_path / "broker" / "README.md"
    module.parent.mkdir()
    module.write_text("1\n")
    page.write_text("words\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    first = facts.sources()
    page.write_text("other words\n")
    git("commit", "-am", "two")
    assert facts.sources() == first, "no module has changed"
    module.write_text("2\n")
    second = facts.sources()
    assert second != first
    module.write_text("3\n")
    assert facts.sources() not in (first, second)
    git("commit", "-am", "three")
    assert facts.sources() not in (first, second)


def test_a_baseline_of_other_sources_is_never_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCKSTEP_NATIVE", "1")
    environment = session.of_tree(tmp_path)
    found = "from lockstep import native; print(native.enable_if_wanted(), native.VARIABLE)"
    done = subprocess.run(
        (sys.executable, "-P", "-c", found),
        env={**os.environ, **environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["0", "LOCKSTEP_NATIVE"] and environment["PYTHONPATH"] == str(tmp_path)
    assert session.of_tree(None) == {}
    options = argparse.Namespace(
        subject="lockstep", vs="self", quick=True, rounds=2, seconds=None, baseline_tree=tmp_path
    )
    said = comparison.command_line(["python -m bench", "latency"], options)
    assert said.startswith("LOCKSTEP_NATIVE=1 python -m bench latency ") and "BEFORE" in said
