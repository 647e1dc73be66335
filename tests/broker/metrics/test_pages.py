"""The listener of a real broker: its pages over HTTP, ports that are taken, and nothing by default."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import lockstep.testing
from compat_tests.probe import free_port
from lockstep.broker.server import Broker, CannotStart
from lockstep.build_info import VERSION, commit
from lockstep.extension import load
from lockstep.protocol.errors import ErrorCode as E
from tests.broker.conftest import StartBroker, small_settings
from tests.broker.locks.asking import lock
from tests.broker.metrics.scraping import get, head, scrape
from tests.broker.test_server import ROOT, ended, ready_port, serve
from tests.broker.wire import Client

LOCKS = ("accepted", "refused", "refused_by_estimate")


async def locks(port: int) -> tuple[float, ...]:
    told = await scrape(port)
    return tuple(told[f'lockstep_locks_{name}_total{{log_group="1"}}'] for name in LOCKS)


async def test_locks_are_counted() -> None:
    port = free_port()
    async with lockstep.testing.broker(lockstep_metrics_listener=f"127.0.0.1:{port}") as running:
        client = await Client.connect(running.port, "localhost")
        await client.create("t", lockstep_locks="true")
        assert await locks(port) == (0, 0, 0)
        assert await lock(client, -1, write_lock="a") == 0
        assert await locks(port) == (1, 0, 0)
        assert await lock(client, -1, write_lock="a") == -E.POLICY_VIOLATION
        assert await lock(client, -1, writelock="a") == -E.INVALID_RECORD
        assert await locks(port) == (1, 2, 0)
        assert await lock(client, 0, read_lock="a") == 1
        assert await lock(client, None) == 2, "no lock, so it is not counted"
        assert await locks(port) == (2, 2, 0)
        await client.close()


async def test_the_pages(start_broker: StartBroker) -> None:
    port = (await start_broker(lockstep_metrics_listener="127.0.0.1:0")).metrics_port
    assert await get(port, "/ping") == (200, "text/plain; charset=utf-8", "pong\n")
    assert await get(port, "/health") == (200, "text/plain; charset=utf-8", "ok\n")
    built = await get(port, "/buildinfo")
    assert (built.status, built.content_type) == (200, "application/json")
    assert json.loads(built.body) == {
        "name": "lockstep",
        "version": VERSION,
        "commit": commit(),
        "runs": load()[1],
    }
    metrics = await get(port, "/metrics")
    assert (metrics.status, metrics.content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    links = await get(port, "/")
    assert (links.status, links.content_type) == (200, "text/html; charset=utf-8")
    assert re.findall('href="([^"]*)"', links.body) == ["/metrics", "/health", "/ping", "/buildinfo"]
    for path in ("/", "/metrics", "/health", "/ping", "/buildinfo"):
        assert (await head(port, path)) == (200, 0)


async def test_a_broker_that_ended_reports_that(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_metrics_listener="127.0.0.1:0")
    broker._fatal(OSError("the disk\nis gone"))
    answer = await get(broker.metrics_port, "/health")
    assert (answer.status, answer.body) == (503, "the log cannot be trusted any more: the disk is gone\n")
    assert (await scrape(broker.metrics_port))["lockstep_healthy"] == 0


async def test_nothing_is_left_after_a_stop(tmp_path: Path) -> None:
    broker = Broker(small_settings(tmp_path / "data", lockstep_metrics_listener="127.0.0.1:0"))
    await broker.start()
    port = broker.metrics_port
    _, slow = await asyncio.open_connection("127.0.0.1", port)
    slow.write(b"GET /ping HTTP/1.1\r\n")
    assert (await get(port, "/ping")).status == 200
    await broker.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    slow.close()
    with socket.create_server(("127.0.0.1", port)):
        pass
    assert broker.metrics_port == 0


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = Broker(small_settings(tmp_path / "data", lockstep_metrics_listener=f"127.0.0.1:{port}"))
        with pytest.raises(
            CannotStart, match=rf"port {port} is in use.*lockstep\.metrics\.listener=HOST:PORT"
        ):
            await broker.start()
    assert not (tmp_path / "data").exists()


async def test_the_clients_own_port(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    settings = small_settings(tmp_path / "data", listeners=address, lockstep_metrics_listener=address)
    with pytest.raises(CannotStart, match=r"^listeners=.* and lockstep\.metrics\.listener=\S+ are the same"):
        await Broker(settings).start()


async def test_a_process(tmp_path: Path) -> None:
    port = free_port()
    setting = f"lockstep.metrics.listener=localhost:{port}"
    process = serve(tmp_path / "data", setting)
    try:
        ready_port(process)
        told = await scrape(port)
        assert told["process_resident_memory_bytes"] > 1 << 20
        second = ended(serve(tmp_path / "other", setting))
    finally:
        process.terminate()
    assert second[:2] == (1, "")
    (line,) = second[2].splitlines()
    assert line.endswith("choose another port: lockstep.metrics.listener=HOST:PORT")
    status, _, err = ended(process)
    assert status == 0
    assert f"serving metrics and health on localhost:{port}\n" in err
    assert "Traceback" not in err


def test_metrics_cost_nothing_where_they_are_off() -> None:
    script = (
        "import asyncio, sys, lockstep.testing\n"
        "async def main():\n"
        "    async with lockstep.testing.broker(): pass\n"
        "asyncio.run(main())\n"
        "heavy = ('prometheus_client', 'lockstep.broker.metrics.')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
