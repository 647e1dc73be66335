"""A network of its own for every run: a namespace per host, each joined by a veth pair to a hub that routes.

    with Network(["n1", "n2", "client"]) as network:
        subprocess.Popen([*network.inside("n1"), "program", ...])
        network.cut("n1", "n2")         # packets from n1 to n2 vanish; those from n2 to n1 do not
        network.heal("n1", "n2")

Owns: the namespaces `lk-PID-...` (the names carry the harness's process id), their addresses 10.77.N.2 and
the cuts, which are source-and-destination blackhole rules in the hub: nobody is told, as with a real
partition, and each direction is its own. Invariant: `close()` leaves nothing, and namespaces of a harness
that was itself killed are removed by the next one, with the processes still in them.
Does not delay or reorder (this needs a relay) and needs root: `NotPossible` says what is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

_PREFIX = "lk"
_CLONE_NEWNET = 0x4000_0000
_NETNS = "/var/run/netns"
_serials = itertools.count()
_P = ParamSpec("_P")
_R = TypeVar("_R")


class NotPossible(RuntimeError):
    """This machine or user has no network namespaces (or no such fault); the text says why."""


def command(*words: str) -> str:
    """Runs a system command; its output. NotPossible with what it said."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotPossible(f"{words[0]}: {error}") from error
    if done.returncode:
        raise NotPossible(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """The namespaces of one run; see the module."""

    def __init__(self, hosts: Sequence[str]) -> None:
        if os.geteuid() != 0:
            raise NotPossible("network namespaces need root")
        remove_stale()
        self.hosts = list(hosts)
        self._run = f"{_PREFIX}-{os.getpid()}-{next(_serials)}"
        self._made: list[str] = []
        self._cuts: set[tuple[str, str]] = set()
        try:
            self._make(self.namespace("hub"))
            command(*self.inside("hub"), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            for number, host in enumerate(self.hosts, 1):
                self._join(host, number)
        except BaseException:
            self.close()
            raise

    def namespace(self, host: str) -> str:
        """The name `ip netns` knows it by."""
        return f"{self._run}-{host}"

    def address(self, host: str) -> str:
        """The only address of a host."""
        return f"10.77.{self.hosts.index(host) + 1}.2"

    def inside(self, host: str) -> list[str]:
        """Words to put before a command that shall run in this host; they `exec`, so the process id stays."""
        return ["ip", "netns", "exec", self.namespace(host)]

    # -- cuts -------------------------------------------------------------------------------------------

    @property
    def cuts(self) -> set[tuple[str, str]]:
        """(source, destination) pairs whose packets vanish."""
        return set(self._cuts)

    def cut(self, source: str, destination: str) -> None:
        """From now on packets from `source` to `destination` vanish; nothing happens when they do already."""
        if (source, destination) not in self._cuts:
            self._rule("add", source, destination)
            self._cuts.add((source, destination))

    def heal(self, source: str, destination: str) -> None:
        """Undoes `cut`."""
        if (source, destination) in self._cuts:
            self._rule("del", source, destination)
            self._cuts.remove((source, destination))

    def heal_all(self) -> None:
        for source, destination in sorted(self._cuts):
            self.heal(source, destination)

    # -- lifecycle --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Removes every namespace (and with it its interfaces). Processes inside must have been ended."""
        while self._made:
            subprocess.run(["ip", "netns", "del", self._made.pop()], capture_output=True, check=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self, name: str) -> None:
        command("ip", "netns", "add", name)
        self._made.append(name)
        command("ip", "-n", name, "link", "set", "lo", "up")

    def _join(self, host: str, number: int) -> None:
        name, hub = self.namespace(host), self.namespace("hub")
        self._make(name)
        port = f"to{number}"
        command("ip", "-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        for place, device, address in (
            (hub, port, f"10.77.{number}.1/24"),
            (name, "eth0", f"10.77.{number}.2/24"),
        ):
            command("ip", "-n", place, "address", "add", address, "dev", device)
            command("ip", "-n", place, "link", "set", device, "up")
        command("ip", "-n", name, "route", "add", "default", "via", f"10.77.{number}.1")

    def _rule(self, what: str, source: str, destination: str) -> None:
        ends = ["from", self.address(source), "to", self.address(destination)]
        command("ip", "-n", self.namespace("hub"), "rule", what, *ends, "blackhole")


class Inside:
    """A thread that lives in a host's namespace: sockets made by what it calls are in that network."""

    def __init__(self, network: Network, host: str, threads: int = 1) -> None:
        path = f"{_NETNS}/{network.namespace(host)}"
        self._pool = ThreadPoolExecutor(threads, f"inside-{host}", initializer=_enter, initargs=(path,))

    def call(self, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Runs it there and waits for its result; its exceptions pass."""
        return self._pool.submit(function, *args, **kwargs).result()

    def close(self) -> None:
        self._pool.shutdown(wait=True)


def _enter(path: str) -> None:
    """setns(2) for the calling thread (Python has it from 3.12 on)."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET):
            raise NotPossible(f"setns {path}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(descriptor)


def remove_stale() -> list[str]:
    """Namespaces of harnesses that are no more, removed with the processes left in them; their names."""
    removed = []
    for line in command("ip", "netns", "list").splitlines():
        name = line.split()[0]
        owner = re.fullmatch(rf"{_PREFIX}-(\d+)-\d+-\w+", name)
        if owner is None or _alive(int(owner[1])):
            continue
        for process_id in subprocess.run(
            ["ip", "netns", "pids", name], capture_output=True, text=True, check=False
        ).stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process_id), signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        removed.append(name)
    return removed


def _alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
