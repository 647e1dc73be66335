"""What the event loop of a serving broker waits for: each call that may block is known, with its reason.

decision 47 has the reasons. The list may only shrink: a call that is added here is to be moved to a thread.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.data_directory import _write_flushed
from lockstep.playing.config import parse
from lockstep.playing.in_broker import PlayerInBroker
from tests.broker.blocking_calls import ROOT, traced
from tests.broker.conftest import StartBroker, StartCluster
from tests.broker.metrics.scraping import get
from tests.broker.wire import Client, batch

FLUSH = "on the loop while the disk is fast, in a thread while it is slow (decision 3)"
ROLL = "begins a file that is ready; once for each file of the log"
CACHE = "goes to the page cache"
VOTE = "a term or a vote is on the disk before the answer; once for each election"
PROC = "reads /proc, which no disk backs"
ALLOWED: dict[str, str] = {
    "fdatasync storage/log/state_file.py:StateFile.save": VOTE,
    "pwritev storage/log/state_file.py:StateFile.save": VOTE,
    "fdatasync storage/log/writer.py:LogWriter.flush": FLUSH,
    "fdatasync storage/log/writer.py:LogWriter._begin_segment": ROLL,
    "open storage/log/writer.py:LogWriter._begin_segment": ROLL,
    "pwritev storage/log/writer.py:LogWriter._begin_segment": ROLL,
    "pwritev storage/log/writer.py:LogWriter._write_out": CACHE,
    "open broker/metrics/pages.py:pages.<locals>.metrics": PROC,
    "os.listdir broker/metrics/pages.py:pages.<locals>.metrics": PROC,
}
MOST = 9
"""So many are allowed. A number that may only be lowered."""


def unknown(found: set[str]) -> list[str]:
    return sorted(found - ALLOWED.keys())


async def work(client: Client, topic: str) -> None:
    for _ in range(30):  # several log files
        assert (await client.produce(topic, batch(b"x" * 150_000))).error_code == 0
    await client.fetch(topic, 0)


async def test_a_node_alone(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await start_broker(lockstep_metrics_listener="127.0.0.1:0", log_flush="always")
    client = await Client.connect(broker.port)
    with traced(monkeypatch) as found:
        await client.create("t")
        await work(client, "t")
        await broker.enforce_retention()
        await broker.compact()
        for path in ("/", "/metrics", "/health", "/ping", "/buildinfo"):
            assert (await get(broker.metrics_port, path)).status == 200
    await client.close()
    assert unknown(found) == []


async def test_a_cluster(start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await start_cluster(3, log_flush="always")
    await cluster.settled()
    leading, client = await cluster.create("t")
    with traced(monkeypatch) as found:
        await work(client, "t")
        await (await cluster.client(1)).create("u")
        cluster.brokers[leading].groups[1].hand_over()
        await cluster.until(lambda: cluster.leader_of(1) not in (None, leading), "another leader")
        for broker in cluster.brokers.values():
            await broker.enforce_retention()
            await broker.compact()
    assert unknown(found) == []


async def test_a_player_in_the_broker(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await start_broker(log_flush="always")
    player = PlayerInBroker(
        parse('player = "p"\ntopic = "t"\n[route]\nby = "all"\n[targets.a]\naddress = "localhost:1"\n')
    )
    client = await Client.connect(broker.port)
    async with player(broker):
        with traced(monkeypatch) as found:
            await client.create("t")
            await work(client, "t")
    await client.close()
    assert unknown(found) == []


def test_a_call_that_blocks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with traced(monkeypatch) as found:
        _write_flushed(tmp_path / "planted", "text")
    assert any(each.startswith("open broker/data_directory.py:") for each in found)
    assert any(each.startswith("fsync broker/data_directory.py:") for each in found)


def test_what_is_allowed_exists() -> None:
    assert len(ALLOWED) <= MOST
    for call in ALLOWED:
        path, _, function = call.split(" ")[1].partition(":")
        name = function.rpartition(".")[2]
        assert f"def {name}(" in (ROOT / path).read_text(), f"{call}: no longer there"
