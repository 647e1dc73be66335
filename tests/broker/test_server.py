"""The broker as a process and as an object: start, stop, restart, refusals, full disks, real clients."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockstep.broker.network.listeners import own_host_name
from lockstep.broker.server import Broker, CannotStart
from lockstep.build_info import VERSION
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lockstep.storage.types import FlushFailed, NewerFormat
from tests.broker.conftest import StartBroker, small_settings
from tests.broker.controller.api.configs import SET, TOPIC, alter, value
from tests.broker.waiting import until
from tests.broker.wire import Client, batch, records_of

ROOT = Path(__file__).parents[2]
READY = re.compile(
    r"Lockstep (?P<version>\S+) ready, serving clients on localhost:(?P<port>\d+), "
    r"data in (?P<directory>\S+)\n"
)
SERVE = (
    "import sys; from lockstep.broker.settings.loader import load; from lockstep.broker.main import run; "
    "run(load(None, sys.argv[1:]))"
)


def serve(
    directory: Path, *settings: str, listen: str = "localhost:0", script: str = SERVE
) -> subprocess.Popen[str]:
    arguments = [f"log.dirs={directory}", f"listeners={listen}", "lockstep.segment.bytes=2097152"]
    arguments += ["message.max.bytes=500000", *settings]
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def ready_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = READY.fullmatch(line)
    assert found is not None, (line, process.stderr.read() if process.stderr else "")
    assert found["version"] == VERSION
    return int(found["port"])


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_the_version_is_the_distributions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["version"] == VERSION


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_one_line_when_ready_and_a_clean_stop(tmp_path: Path, stop: signal.Signals) -> None:
    process = serve(tmp_path / "data", "num.io.threads=8")
    ready_port(process)
    process.send_signal(stop)
    status, out, err = ended(process)
    assert (status, out) == (0, "")
    assert "without effect here: num.io.threads" in err
    assert "stopped" in err
    assert "Traceback" not in err


async def test_clients_cannot_take_the_open_files_of_the_log(tmp_path: Path) -> None:
    script = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (150, 150)); " + SERVE
    process = serve(tmp_path / "data", script=script)
    try:
        port = ready_port(process)
        client = await Client.connect(port, "localhost")
        await client.create("t")
        held = []
        for _ in range(200):
            held.append(await asyncio.open_connection("localhost", port))
            await asyncio.sleep(0)
        for _ in range(12):  # several log files
            assert (await client.produce("t", batch(b"x" * 400_000))).error_code == 0
        assert process.poll() is None
        for _, writer in held:
            writer.close()
    finally:
        process.kill()
        assert "the limit on open files leaves room for 75 connections" in process.communicate()[1]


async def test_kill_9_loses_nothing_acknowledged(tmp_path: Path) -> None:
    process = serve(tmp_path / "data")
    client = await Client.connect(ready_port(process), "localhost")
    await client.create("t")
    for number in range(20):
        await client.produce("t", batch(b"%d" % number))
    process.kill()
    process.communicate()
    process = serve(tmp_path / "data")
    try:
        client = await Client.connect(ready_port(process), "localhost")
        data = await client.fetch("t", 0)
        assert [record.value for record in records_of(data)] == [b"%d" % number for number in range(20)]
        assert (await client.produce("t", batch(b"next"))).base_offset == 20
    finally:
        process.kill()
        process.communicate()


def test_refusals_in_words(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = ended(serve(tmp_path / "a", listen=f"127.0.0.1:{port}"))
        assert (status, out) == (1, "")
        assert f"port {port} is in use" in err
        assert "Traceback" not in err
        assert "--listen HOST:PORT" in err and "make serve LISTEN=HOST:PORT" in err
    assert not (tmp_path / "a").exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "meta.properties").write_text("format=99\nnode.id=1\n")
    status, out, err = ended(serve(tmp_path / "b"))
    assert status == 1
    assert "format 99" in err
    process = serve(tmp_path / "c")
    port = ready_port(process)
    for listen in ("localhost:0", f"localhost:{port}"):
        status, _, err = ended(serve(tmp_path / "c", listen=listen))
        assert status == 1
        assert f"another Lockstep (process {process.pid}) runs on" in err
    process.terminate()
    ended(process)
    (tmp_path / "file").write_text("")
    for name, said in (("file", "is a file, not a directory"), ("file/below", "not a directory")):
        status, _, err = ended(serve(tmp_path / name))
        assert status == 1
        assert f"{tmp_path / name}" in err and said in err
        assert name == "file" or "see --data-dir, log.dirs" in err
        assert "Traceback" not in err and "Errno" not in err


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            ("advertised.listeners=PLAINTEXT://broker.example:19092",),
            ", advertised to clients as broker.example:19092",
        ),
        (("advertised.listeners=PLAINTEXT://localhost:0",), ""),
        (("advertised.listeners=PLAINTEXT://:19092",), f", advertised to clients as {own_host_name()}:19092"),
        ((), ""),
    ],
)
def test_advertised_addresses_are_logged(tmp_path: Path, settings: tuple[str, ...], told: str) -> None:
    process = serve(tmp_path / "data", *settings)
    assert process.stdout is not None
    line = process.stdout.readline()
    process.terminate()
    ended(process)
    assert line.endswith(f", data in {tmp_path / 'data'}{told}\n")


def test_what_the_log_was_like_is_one_line_per_group(tmp_path: Path) -> None:
    said: list[list[str]] = []
    for stop in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        process = serve(tmp_path / "data")
        ready_port(process)
        process.send_signal(stop)
        _, _, err = ended(process)
        said.append([line for line in err.splitlines() if "log group" in line])
    assert said[0] == []
    assert [line.split("INFO")[1].strip() for line in said[1]] == [
        f"log group {number} was stopped cleanly, nothing to replay" for number in (0, 1)
    ]
    assert [line.split("INFO")[1].strip() for line in said[2]] == [
        f"log group {number} replayed 1 frame after its last checkpoint" for number in (0, 1)
    ]


async def test_an_unfinished_write_is_logged(
    start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = serve(tmp_path / "data", "log.flush=os")
    client = await Client.connect(ready_port(process), "localhost")
    await client.create("t")
    await client.produce("t", batch(b"kept"))
    await client.produce("t", batch(b"the last words"))
    process.kill()
    ended(process)
    caplog.set_level("INFO", "lockstep")
    for segment in (tmp_path / "data" / "groups" / "1").glob("*.segment"):
        data = segment.read_bytes()
        at = data.rfind(b"the last words")
        if at >= 0:
            segment.write_bytes(data[:at] + b"X" + data[at + 1 :])
    await start_broker(tmp_path / "data", lockstep_segment_bytes="2097152")
    assert "log group 1 replayed" in caplog.text
    assert "; an unfinished write was truncated at segment" in caplog.text


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("", True), ("127.0.0.1", False)])
async def test_an_address_others_reach_warns(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture, host: str, warned: bool
) -> None:
    broker = await start_broker(listeners=f"PLAINTEXT://{host}:0")
    said = f"any client that reaches {host}:{broker.port} may do anything: no authorizer is configured"
    assert (said in caplog.text) == warned


async def test_two_brokers_cannot_share_a_directory(start_broker: StartBroker, tmp_path: Path) -> None:
    await start_broker(tmp_path / "data")
    with pytest.raises(CannotStart, match="another Lockstep"):
        await Broker(small_settings(tmp_path / "data")).start()


async def test_a_failed_start_leaves_nothing_behind(start_broker: StartBroker, tmp_path: Path) -> None:
    first = await start_broker(tmp_path / "a")
    other = Broker(small_settings(tmp_path / "b", listeners=f"PLAINTEXT://127.0.0.1:{first.port}"))
    with pytest.raises(CannotStart, match="is in use"):
        await other.start()
    await start_broker(tmp_path / "b")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "meta.properties").write_text("format=3\nnode.id=1\n")
    with pytest.raises(NewerFormat):
        await Broker(small_settings(tmp_path / "c")).start()


async def test_stop_answers_what_is_under_way(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t")
    waiting = await Client.connect(broker.port)
    stopping = asyncio.ensure_future(client.produce("t", batch(b"last words")))
    await asyncio.sleep(0.02)
    await broker.stop()
    assert (await stopping).error_code == 0
    assert await waiting.is_closed()
    again = await start_broker()
    client = await Client.connect(again.port)
    assert [record.value for record in records_of(await client.fetch("t", 0))] == [b"last words"]
    await again.stop()
    await again.stop()


async def test_a_failed_flush_ends_it(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await client.create("t")

    def fail() -> None:
        raise FlushFailed("planted")

    monkeypatch.setattr(broker.groups[1].log, "flush", fail)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await client.produce("t", batch(b"never acknowledged"))
    assert isinstance(broker.failed, FlushFailed)
    with pytest.raises(ConnectionError):
        await Client.connect(broker.port)


FAILING_DISK = """
import os
import sys
from lockstep.broker.settings.loader import load
from lockstep.broker.main import run
from lockstep.storage.log.file_system import RealFileSystem

flush = RealFileSystem.fdatasync

def fail_once_armed(fd):
    if os.path.exists(sys.argv[-1]):
        raise OSError(5, "Input/output error")
    flush(fd)

RealFileSystem.fdatasync = staticmethod(fail_once_armed)
run(load(None, sys.argv[1:-1]))
"""


async def test_a_failed_flush_stops_the_process(tmp_path: Path) -> None:
    process = serve(tmp_path / "data", str(tmp_path / "armed"), script=FAILING_DISK)
    client = await Client.connect(ready_port(process), "localhost")
    await client.create("t")
    await client.produce("t", batch(b"kept"))
    (tmp_path / "armed").touch()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await client.produce("t", batch(b"lost"))
    status, _, err = ended(process)
    assert status == 70
    assert "stopping at once" in err
    assert "flush failed" in err


async def test_a_full_disk(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a"))
    log = type(broker.groups[1].log)
    retried: list[int] = []
    with monkeypatch.context() as full:
        full.setattr(log, "disk_full", property(lambda self: True))
        full.setattr(log, "has_space_for", lambda self, *_, **__: False)
        full.setattr(log, "retry_space", lambda self: retried.append(1))
        assert (await client.produce("t", batch(b"b"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        response = await client.call(
            CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)]), 7
        )
        assert response.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(records_of(await client.fetch("t", 0))) == 1
        await until(lambda: retried, 60)
        await until(lambda: "the disk is full" in caplog.text, 60)
    assert (await client.produce("t", batch(b"b"))).base_offset == 1
    await client.create("u")


async def test_retention_shortened_on_a_full_disk_acts_and_leaves_what_is_kept_for_deletes(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await client.create("t")
    await client.produce("t", batch(b"a"))
    *_, partition = broker.groups[1].partitions.values()
    log = type(broker.groups[0].log)
    monkeypatch.setattr("lockstep.broker.maintenance.full_disks.RETENTION_SECONDS", 0.1)

    with monkeypatch.context() as full:
        full.setattr(log, "disk_full", property(lambda self: True))
        await until(lambda: "the disk is full" in caplog.text)
        assert await alter(client, (TOPIC, "t"), ("retention.ms", SET, "1")) == (0, None)
        await until(lambda: partition.log_start_offset == 1)
        full.setattr(log, "has_space_for", lambda self, *_, reserved=False, **__: reserved)
        refused, _ = await alter(client, (TOPIC, "t"), ("retention.ms", SET, "5"))
    assert refused == ErrorCode.KAFKA_STORAGE_ERROR
    assert await value(client, (TOPIC, "t"), "retention.ms") == ("1", 1)


async def test_all_logs_make_room_for_an_installation(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    yielding: dict[int, bool] = {}
    for number, group in broker.groups.items():
        monkeypatch.setattr(group.log, "yield_room", partial(yielding.__setitem__, number))

    async def until(wanted: bool) -> None:
        for _ in range(200):
            await asyncio.sleep(0.05)
            if yielding == dict.fromkeys(broker.groups, wanted):
                return
        raise AssertionError(yielding)

    await until(False)
    with monkeypatch.context() as full:
        full.setattr(broker.groups[1].installer, "_no_room_index", 1 << 40)
        await until(True)
    await until(False)


# --- real clients -----------------------------------------------------------------------------------------


def with_kafka_python(bootstrap_servers: str) -> None:
    import kafka  # type: ignore[import-not-found,unused-ignore]

    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap_servers)
    sent = [producer.send("kp", key=b"k", value=b"%d" % n, headers=[("h", b"x")]) for n in range(100)]
    assert [future.get(10).offset for future in sent] == list(range(100))
    producer.close()
    partition = kafka.TopicPartition("kp", 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=None)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found: list[bytes] = []
    while len(found) < 100:
        found += [message.value for each in consumer.poll(5000).values() for message in each]
    assert found == [b"%d" % n for n in range(100)]
    assert consumer.end_offsets([partition]) == {partition: 100}
    consumer.close()


def with_confluent(bootstrap_servers: str) -> None:
    import confluent_kafka as librdkafka  # type: ignore[import-not-found,unused-ignore]
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic("ck", 3, 1)])["ck"].result(10)
    assert "ck" in admin.list_topics(timeout=10).topics
    producer = librdkafka.Producer(
        {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "compression.type": "zstd"}
    )
    errors: list[object] = []
    for number in range(300):
        producer.produce("ck", key=b"%d" % number, value=b"v", callback=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None] * 300
    consumer = librdkafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "none yet", "enable.auto.commit": False}
    )
    consumer.assign([librdkafka.TopicPartition("ck", index, 0) for index in range(3)])
    keys: set[bytes | None] = set()
    deadline = time.monotonic() + 20
    while len(keys) < 300 and time.monotonic() < deadline:
        keys |= {message.key() for message in consumer.consume(300, 1) if message.error() is None}
    assert len(keys) == 300
    consumer.close()
    admin.delete_topics(["ck"])["ck"].result(10)


async def with_aiokafka(bootstrap_servers: str) -> None:
    import aiokafka  # type: ignore[import-not-found,unused-ignore]

    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(50):
            assert (await producer.send_and_wait("ak", b"%d" % number)).offset == number
    async with aiokafka.AIOKafkaConsumer(
        "ak", bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        found = [(await consumer.getone()).value for _ in range(50)]
    assert found == [b"%d" % number for number in range(50)]


async def test_kafka_python(broker: Broker) -> None:
    await asyncio.wait_for(asyncio.to_thread(with_kafka_python, broker.bootstrap_servers), 60)


async def test_confluent_kafka(broker: Broker) -> None:
    await asyncio.wait_for(asyncio.to_thread(with_confluent, broker.bootstrap_servers), 60)


async def test_aiokafka(broker: Broker) -> None:
    await asyncio.wait_for(with_aiokafka(broker.bootstrap_servers), 60)


async def test_nobody_was_silent_while_the_process_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What clients sent meanwhile is in the kernel: only the next look can tell."""
    times = iter([0.0, 0.05, 60.0, 60.05])
    looks: list[float] = []

    def monotonic() -> float:
        try:
            return next(times)
        except StopIteration:
            raise asyncio.CancelledError from None

    monkeypatch.setattr("lockstep.broker.server.time", SimpleNamespace(monotonic=monotonic))
    broker = Broker(small_settings(tmp_path, connections_max_idle_ms="100"))
    with pytest.raises(asyncio.CancelledError):
        await broker._reap_idle_connections(SimpleNamespace(closed=0, reap_idle=looks.append))  # type: ignore[arg-type]
    assert looks == [0.05, 60.05]
