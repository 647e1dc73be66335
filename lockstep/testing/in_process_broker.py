"""The broker that `lockstep.testing` starts: on the running event loop, or on one of its own in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from lockstep.broker.settings.config import Settings

Value = str | int | bool | list[str] | tuple[str, ...]

SMALL: Final = {
    "lockstep.segment.bytes": "4194304",
    "lockstep.spare.segments": "1",
    "lockstep.shutdown.timeout.ms": "200",
}
"""Settings for a fast start and small files. A larger `message_max_bytes` makes the files larger."""

_START_TIMEOUT_S: Final = 30.0


class RunningBroker(Protocol):
    """A running broker, as a test sees it."""

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT, for any client."""

    @property
    def port(self) -> int: ...
    @property
    def directory(self) -> Path:
        """The directory of its data."""


class _Running:
    def __init__(self, bootstrap_servers: str, port: int, directory: Path) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.port = port
        self.directory = directory


@contextlib.asynccontextmanager
async def broker(*, data_dir: Path | str | None = None, **settings: Value) -> AsyncIterator[RunningBroker]:
    """A broker on the running loop until the block ends.

    Args:
        data_dir: where to keep the data, for a test that starts a second broker on them; deleted by default.
        settings: the broker's, with underscores for dots.
    Raises:
        lockstep.broker.settings.properties.ConfigError: for a setting that is not known or not valid.
    """
    from lockstep.broker.server import Broker

    with _directory(data_dir) as directory:
        running = Broker(_settings(directory, settings))
        await running.start()
        try:
            yield _Running(running.bootstrap_servers, running.port, directory)
        finally:
            await running.stop()


@contextlib.contextmanager
def broker_in_thread(*, data_dir: Path | str | None = None, **settings: Value) -> Iterator[RunningBroker]:
    """Same as `broker`, on an event loop of its own in a thread: for tests and clients without asyncio."""
    with _directory(data_dir) as directory:
        loop = _LoopThread(directory, settings)
        try:
            yield loop.wait_until_running()
        finally:
            loop.end()


class _LoopThread:
    """An event loop in a thread, for as long as its broker runs."""

    def __init__(self, directory: Path, settings: dict[str, Value]) -> None:
        self._directory = directory
        self._settings = settings
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._running: RunningBroker | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="lockstep-broker", daemon=True)
        self._thread.start()

    def wait_until_running(self) -> RunningBroker:
        if not self._ready.wait(_START_TIMEOUT_S):
            raise TimeoutError(f"the broker did not start within {_START_TIMEOUT_S:g} s")
        if self._failure is not None:
            raise self._failure
        assert self._running is not None
        return self._running

    def end(self) -> None:
        if self._loop is not None and self._ended is not None:
            with contextlib.suppress(RuntimeError):  # the loop is gone already
                self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_START_TIMEOUT_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        async with broker(data_dir=self._directory, **self._settings) as self._running:
            self._ready.set()
            await self._ended.wait()


def _settings(directory: Path, given: dict[str, Value]) -> Settings:
    from lockstep.broker.settings.config import PROPERTIES
    from lockstep.broker.settings.properties import ConfigError
    from lockstep.broker.settings.settings_reader import from_texts

    names = {attribute: name for name, (attribute, _) in PROPERTIES.items()}
    texts = {**SMALL, "log.dirs": str(directory), "listeners": "PLAINTEXT://localhost:0"}
    for attribute, value in given.items():
        if attribute not in names:
            raise ConfigError(attribute, str(value), "there is no such setting")
        texts[names[attribute]] = _text(value)
    if "message_max_bytes" in given and "lockstep_segment_bytes" not in given:
        room = int(texts["message.max.bytes"]) * 2 + (1 << 20)
        texts["lockstep.segment.bytes"] = str(max(int(SMALL["lockstep.segment.bytes"]), room))
    return from_texts(texts)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, (list, tuple)) else str(value)


@contextlib.contextmanager
def _directory(chosen: Path | str | None) -> Iterator[Path]:
    if chosen is not None:
        yield Path(chosen)
        return
    made = Path(tempfile.mkdtemp(prefix="lockstep-test-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
