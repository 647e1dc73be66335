"""The process's last word and exit status, by when the error came."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockstep.broker import main
from lockstep.broker.server import CannotStart
from lockstep.broker.settings.config import Settings
from lockstep.storage.types import FlushFailed, NewerFormat, StorageError
from tests.broker.conftest import small_settings
from tests.support.cases import each_case


class FailingBroker:
    """A broker that a signal stops as soon as it serves. Args: at_start, at_stop: the errors it ends with."""

    waits_for = ""
    is_excluded = False
    assembly = SimpleNamespace(node=None)

    def __init__(self, at_start: Exception | None = None, at_stop: Exception | None = None) -> None:
        self._at_start = at_start
        self._at_stop = at_stop

    async def start(self) -> None:
        if self._at_start is not None:
            raise self._at_start

    async def wait_until_serving(self) -> None:
        return

    async def wait_until_excluded(self) -> None:
        return

    async def stop(self) -> None:
        if self._at_stop is not None:
            raise self._at_stop


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(main, "REMOVED_WAIT_SECONDS", 0)
    monkeypatch.setattr(main, "ready_line", lambda _: "ready")
    monkeypatch.setattr("gc.freeze", lambda: None)
    return small_settings(tmp_path)


IO_ERROR = OSError(errno.EIO, os.strerror(errno.EIO), "log")


@pytest.mark.parametrize(
    ("broker", "status", "text"),
    [
        (FailingBroker(at_start=IO_ERROR), main.EXIT_BAD_START, "cannot start: "),
        (FailingBroker(at_start=CannotStart("why")), main.EXIT_BAD_START, "cannot start: why"),
        (FailingBroker(at_stop=IO_ERROR), main.EXIT_FATAL, "ended by an error: "),
    ],
    ids=["an error at the start", "no start", "an error at the end"],
)
def test_an_error_after_the_start_is_no_failed_start(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    settings: Settings,
    broker: FailingBroker,
    status: int,
    text: str,
) -> None:
    monkeypatch.setattr(main, "Broker", lambda *_, **__: broker)
    with pytest.raises(SystemExit) as ended:
        main._run(settings, None)
    assert ended.value.code == status
    assert caplog.records[-1].getMessage().startswith(text)


def test_a_node_that_is_too_old_for_its_cluster_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    settings: Settings,
) -> None:
    node = SimpleNamespace(removed=asyncio.Event(), was_part=False, too_old="node 1 is too old")
    monkeypatch.setattr(FailingBroker, "assembly", SimpleNamespace(node=node))
    monkeypatch.setattr(FailingBroker, "is_excluded", True)
    monkeypatch.setattr(main, "Broker", lambda *_, **__: FailingBroker())
    with pytest.raises(SystemExit) as ended:
        main._run(settings, None)
    assert ended.value.code == main.EXIT_BAD_START
    assert caplog.records[-1].getMessage() == "cannot start: node 1 is too old"
    assert capsys.readouterr().out == "", "no line says that it is ready"


@each_case(
    ("failure", "status", "line"),
    [
        (FlushFailed("no flush"), 70, "stopping at once, the log cannot be trusted any more: no flush"),
        (NewerFormat("version 9"), 1, "stopping at once: version 9"),
    ],
)
def test_a_failure_of_the_log_ends_the_process_at_once(
    failure: StorageError,
    status: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    caplog.set_level(logging.CRITICAL, "lockstep")
    caplog.clear()  # of the case before
    main._end_process(failure)
    assert (ended, caplog.messages) == ([status], [line])
