"""A cut stops packets in one direction only, a heal undoes it, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from compat_tests.kafka_jars import skip_or_fail
from tests.torture.network import Inside, Network, NotPossible, command, remove_stale

PORT = 9999


@pytest.fixture
def network() -> Iterator[Network]:
    try:
        made = Network(["a", "b", "c"])
    except NotPossible as reason:
        skip_or_fail(str(reason))
        return
    with made:
        yield made


def arrives(network: Network, source: str, destination: str) -> bool:
    """Whether one datagram gets through; asks nothing of the other direction."""
    here, there = Inside(network, source), Inside(network, destination)
    receiver = there.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    sender = here.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    try:
        receiver.bind((network.address(destination), PORT))
        receiver.settimeout(0.3)
        sender.sendto(b"hello", (network.address(destination), PORT))
        return receiver.recv(10) == b"hello"
    except TimeoutError:
        return False
    finally:
        receiver.close()
        sender.close()
        here.close()
        there.close()


def test_a_cut_is_one_way_and_touches_nobody_else(network: Network) -> None:
    assert arrives(network, "a", "b")
    network.cut("a", "b")
    assert not arrives(network, "a", "b")
    assert arrives(network, "b", "a")
    assert arrives(network, "a", "c") and arrives(network, "c", "b")
    network.cut("a", "b")  # again: still one rule, undone by one heal
    network.heal("a", "b")
    assert arrives(network, "a", "b")
    assert network.cuts == set()


def test_a_connection_hangs_in_a_cut_and_lives_on_after_it(network: Network) -> None:
    here, there = Inside(network, "a"), Inside(network, "b")
    server = there.call(socket.create_server, (network.address("b"), PORT))
    client = here.call(socket.create_connection, (network.address("b"), PORT), 2)
    answer, _ = server.accept()
    try:
        network.cut("a", "b")
        network.cut("b", "a")
        answer.settimeout(0.3)
        client.send(b"x")
        with pytest.raises(TimeoutError):
            answer.recv(1)
        network.heal_all()
        answer.settimeout(10)
        assert answer.recv(1) == b"x"  # the kernel's retransmission
    finally:
        for each in (server, client, answer, here, there):
            each.close()


def test_closing_removes_the_namespaces(network: Network) -> None:
    names = [network.namespace(host) for host in ("hub", "a", "b", "c")]
    listed = command("ip", "netns", "list")
    assert all(name in listed for name in names)
    network.close()
    listed = command("ip", "netns", "list")
    assert not any(name in listed for name in names)


def test_the_next_run_removes_what_a_killed_one_left(network: Network) -> None:
    script = (
        "import subprocess, time; from tests.torture.network import Network; made = Network(['x']);"
        "child = subprocess.Popen([*made.inside('x'), 'sleep', '60']);"
        "print(made.namespace('x'), child.pid, flush=True); time.sleep(60)"
    )
    harness = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert harness.stdout is not None
    name, child = harness.stdout.readline().split()
    assert name not in remove_stale()  # it lives
    harness.kill()
    harness.wait()
    harness.stdout.close()
    remove_stale()
    assert name not in command("ip", "netns", "list")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(int(child), 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.kill(int(child), signal.SIGKILL)
    raise AssertionError("the process in the namespace lives on")
