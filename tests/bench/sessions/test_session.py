"""What a session does with what goes wrong: missing records, blocks tried again, an interrupted run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from bench.machine import device, process
from bench.machine.device import NoBlockDevice
from bench.sessions import session
from bench.sessions.jobs import RoundFailed, WrongCount
from bench.sessions.session import Session
from bench.sessions.setup import Setup, of_tree
from bench.settings import QUICK
from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.targets import ROOT
from tests.bench.load.serving import serving
from tests.bench.load.test_wire import produce_response
from tests.bench.sessions.told import Told, told_block


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
        told.once_more("work", lambda: told_block(told))
    assert told.blocks == [] and told.again == []
    whole = Told(10)
    assert whole.once_more("work", lambda: told_block(whole))["topic"] == "topic"


def test_records_that_cannot_be_counted_leave_no_block() -> None:
    class Silent(Told):
        def end_offsets(self, topic: str, partitions: int) -> list[int]:
            raise RoundFailed("no end offsets")

    told = Silent(10)
    with pytest.raises(RoundFailed):
        told_block(told)
    assert told.blocks == []


def test_where_flushes_cannot_be_counted_nothing_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(directory: Path) -> str:
        raise NoBlockDevice("no disk")

    monkeypatch.setattr(device, "device_of", refused)
    with pytest.raises(NoBlockDevice):
        Session("subject", Setup("lockstep"), QUICK, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_cannot_be_made_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(self: Session) -> NoReturn:
        (self.directory / "begun").touch()
        raise ToolchainMissing("no Java")

    monkeypatch.setattr(device, "device_of", lambda directory: "vda")
    monkeypatch.setattr(Session, "_make_target", missing)
    with pytest.raises(ToolchainMissing):
        Session("subject", Setup("kafka"), QUICK, tmp_path)
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
        with told.idle_connections(2):
            pass
        assert not told._jobs
        with pytest.raises(RoundFailed), told.idle_connections(2):
            next(iter(told._jobs)).kill()
        with pytest.raises(ZeroDivisionError), told.idle_connections(2):
            raise ZeroDivisionError
        told.close()


def test_a_session_that_ends_leaves_no_job_behind(tmp_path: Path) -> None:
    told = WithJobs(1, tmp_path / "data")
    child = told.start_job("first_ack", topic="t", timeout_s=60.0)
    told.close()
    assert child.poll() == -signal.SIGKILL


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


def test_a_tool_that_does_not_end_fails_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "java_command", lambda: sys.executable)
    monkeypatch.setattr(session, "JOB_TIMEOUT_S", 0.2)
    monkeypatch.setattr(session, "classpath", lambda: "")
    monkeypatch.setattr(session, "JAVA_OPTIONS", ("-c", "import time; time.sleep(30)"))
    with pytest.raises(RoundFailed, match="did not end within"):
        Told(0).run_java("Main", [])


def test_a_baseline_of_other_sources_is_never_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCKSTEP_NATIVE", "1")
    environment = of_tree(tmp_path)
    found = "from lockstep import native; print(native.enable_if_requested(), native.VARIABLE)"
    done = subprocess.run(
        (sys.executable, "-P", "-c", found),
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["0", "LOCKSTEP_NATIVE"] and environment["PYTHONPATH"] == str(tmp_path)
    assert of_tree(None) == {"PYTHONPATH": str(ROOT)}
