"""`lockstep serve --processes` as its users see it: real processes, real clients, kills and stops."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, Producer

from compat_tests import fork_server
from compat_tests.probe import free_port
from lockstep.kafka_client import cluster
from lockstep.kafka_client.client import Client

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "lockstep"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
SMALL = ("--set", "lockstep.segment.bytes=1048576", "--set", "message.max.bytes=200000")
SECONDS = 120.0
PARTITIONS = 6


class Command:
    """A running command: its log so far, and the address in its ready line."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "serve", *SMALL, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.lines: list[str] = []
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def ready(self) -> str:
        """The address for clients."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r" ready, serving clients on (\S+:\d+) with \d processes", line)
        assert found is not None, line + "".join(self.lines)
        return found[1]

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not any(words in line for line in self.lines):
            assert time.monotonic() < deadline, f"no {words!r} in:\n{''.join(self.lines)}"
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """The exit status, once all is read."""
        status = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return status

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))


@contextmanager
def serving(*arguments: str) -> Iterator[Command]:
    command = Command(*arguments)
    try:
        yield command
    finally:
        if command.process.poll() is None:
            command.process.kill()  # its nodes end with it
        command.process.wait()


def free_ports(count: int) -> int:
    """The first of several free ports for clients, with those of the nodes free as well."""
    for _ in range(100):
        first = free_port()
        if first < 40_000:
            ports = [first + above + number for above in (0, 20_000) for number in range(count)]
            if all(is_free(port) for port in ports):
                return first
    raise AssertionError("no free ports")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def children(command: Command) -> dict[int, int]:
    """The process of each node."""
    found = {}
    for child in psutil.Process(command.process.pid).children():
        for argument in child.cmdline():
            if argument.startswith("node.id="):
                found[int(argument.partition("=")[2])] = child.pid
    return found


def health(port: int) -> int:
    with urllib.request.urlopen(f"http://localhost:{port}/health", timeout=10) as page:
        status: int = page.status
        return status


async def produce(address: str, values: range) -> None:
    """By aiokafka, idempotent, to all partitions."""
    producer = AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True)
    await producer.start()
    try:
        for value in values:
            await producer.send_and_wait("t", b"%d" % value, partition=value % PARTITIONS)
    finally:
        await producer.stop()


def consume(address: str, group: str, count: int) -> list[int]:
    """By librdkafka, in a group."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found: list[int] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(int(message.value() or b"-1"))
    consumer.close()
    return sorted(found)


async def test_three_processes_serve_clients_lose_one_and_stop(tmp_path: Path) -> None:
    first = free_ports(6)
    metrics = first + 3
    arguments = ("--processes", "3", "--data-dir", str(tmp_path / "data"), "--listen", f"localhost:{first}")
    with serving(*arguments, "--set", f"lockstep.metrics.listener=localhost:{metrics}") as command:
        address = command.ready()
        assert address == f"localhost:{first}"
        nodes = children(command)
        assert sorted(nodes) == [1, 2, 3]
        async with Client(address) as client:
            await client.create_topic("t", partitions=PARTITIONS)
            found = await cluster.status(client)
        assert found["healthy"] and [each["node"] for each in found["nodes"]] == [1, 2, 3]
        await produce(address, range(60))
        assert consume(address, "before", 60) == list(range(60))
        assert [health(metrics + number) for number in range(3)] == [200] * 3

        os.kill(nodes[2], signal.SIGKILL)
        command.wait_for("node 2 was killed by signal 9 (SIGKILL); it is started again in 0.5 s")
        await produce(address, range(60, 90))  # waits for node 2 where it has to
        assert consume(address, "after", 90) == list(range(90))
        again = children(command)
        assert sorted(again) == [1, 2, 3] and again[2] != nodes[2]

        assert command.stop() == 0
        assert not any(psutil.pid_exists(pid) for pid in again.values())
        assert any(line.startswith("node 3 | ") and line.endswith("stopped\n") for line in command.lines)
        assert (tmp_path / "data" / ".lock").read_text() == ""
    with serving(*arguments) as command:
        address = command.ready()
        await in_one_transaction(address)
        consumer = AIOKafkaConsumer(bootstrap_servers=address, isolation_level="read_committed")
        await consumer.start()
        ends = await consumer.end_offsets([TopicPartition("t", index) for index in range(PARTITIONS)])
        await consumer.stop()
        assert sum(ends.values()) == 90 + 2 * PARTITIONS  # each with a marker
        assert consume(address, "committed", 90 + PARTITIONS)[-PARTITIONS:] == list(range(90, 96))
        assert command.stop(signal.SIGINT) == 0


@pytest.fixture
def closed(tmp_path: Path) -> tuple[str, ...]:
    """Options of two nodes whose ACLs keep everything from the clients of the plaintext listener."""
    return (
        *("--processes", "2", "--data-dir", str(tmp_path / "data"), "--listen", f"localhost:{free_ports(2)}"),
        *("--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        *("--set", "super.users=User:admin"),
    )


def test_nodes_whose_acls_keep_the_status_from_the_command_serve(closed: tuple[str, ...]) -> None:
    with serving(*closed) as command:
        port = int(command.ready().rpartition(":")[2])
        # Whoever is on this machine is no node without a certificate, and so forwards nothing as anybody.
        with socket.create_connection(("localhost", port + 20_000), SECONDS) as stranger:
            stranger.sendall(b"\0\0\0\1x")
            command.wait_for("no TLS, which this node requires")
        assert command.stop() == 0


async def in_one_transaction(address: str) -> None:
    """By librdkafka, over all partitions and so over all nodes."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "x"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for index in range(PARTITIONS):
        producer.produce("t", b"%d" % (90 + index), partition=index)
    producer.commit_transaction(SECONDS)


def test_a_command_that_is_killed_takes_its_nodes_with_it(tmp_path: Path) -> None:
    first = free_ports(2)
    with serving(
        "--processes", "2", "--data-dir", str(tmp_path), "--listen", f"localhost:{first}"
    ) as command:
        command.ready()
        nodes = [psutil.Process(pid) for pid in children(command).values()]
        assert len(nodes) == 2
        command.process.kill()
        _, alive = psutil.wait_procs(nodes, SECONDS)
        assert not alive


def refused(*arguments: str, status: int = 1) -> str:
    command = [*COMMAND, "serve", *arguments]
    done = fork_server.run(command, text=True, timeout_s=SECONDS, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (status, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return str(done.stderr)


def test_all_ports_in_use_are_named_and_nothing_is_started(tmp_path: Path) -> None:
    first = free_ports(3)
    with socket.socket() as clients, socket.socket() as peers:
        for taken, port in ((clients, first + 1), (peers, first + 20_002)):
            taken.bind(("127.0.0.1", port))
            taken.listen()
        said = refused("--processes", "3", "--data-dir", str(tmp_path), "--listen", f"localhost:{first}")
    assert f"node 2: port {first + 1} is in use" in said and "--listen HOST:PORT (node 1's" in said
    assert f"node 3: port {first + 20_002} is in use" in said
    assert not list(tmp_path.glob("node-*/meta.properties"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--node-id", "2"], "node.id names one node"),
        (["--set", "default.replication.factor=2"], "default.replication.factor=2"),
        (["--set", "no.such=1"], "no.such"),
        (["--processes", "65"], "--processes 65: the number of processes is 1 to 64"),
        (["--processes", "0"], "--processes 0: the number of processes is 1 to 64"),
        (["--listen", "localhost:0"], "no port 0"),
    ],
)
def test_usage_that_does_not_fit_is_named(tmp_path: Path, arguments: list[str], words: str) -> None:
    directory = tmp_path / "data"
    assert words in refused("--processes", "2", "--data-dir", str(directory), *arguments, status=2)
    assert not directory.exists()


def test_a_file_of_settings_counts_for_each_node_and_is_checked_first(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("node.id=4\n")
    arguments = ("--processes", "2", "--data-dir", str(tmp_path / "data"), "--config", str(config))
    assert "node.id names one node" in refused(*arguments, status=2)
    first = free_ports(2)
    config.write_text(f"listeners=PLAINTEXT://localhost:{first}\nnum.partitions=4\nlog.dir=elsewhere\n")
    with serving(*arguments) as command:
        assert command.ready() == f"localhost:{first}"
        assert command.stop() == 0
    assert (tmp_path / "data" / "node-2" / "meta.properties").exists()


def test_a_node_that_never_starts_ends_all(tmp_path: Path) -> None:
    first = free_ports(2)
    (tmp_path / "node-2").mkdir()
    (tmp_path / "node-2" / "groups").mkdir()
    (tmp_path / "node-2" / "groups" / "0").mkdir()
    with serving(
        "--processes", "2", "--data-dir", str(tmp_path), "--listen", f"localhost:{first}"
    ) as command:
        assert command.ended() == 1
    said = "".join(command.lines)
    assert "node 2 | " in said and "has log groups but no meta.properties" in said
    assert "node 2 ended with status 1: all processes are stopped" in said
