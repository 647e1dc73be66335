"""Runs one process for each node until a stop signal, and starts again what ends by itself.

Owns: the processes, their output with the node's number in front of each line, the one line on standard
output once the cluster serves clients, and the exit status. Invariants: all ports and directories are looked
at before the first process starts; no process outlives the command by more than the limits of a stop, not
even where the command is killed (`die_with_parent`). Does not: decide what an end means (`restart_policy`),
or take part in any request.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from lockstep.broker.network.listeners import CannotListen, bind, check_conflicts, host_and_port
from lockstep.broker.node.data_directory import (
    META_NAME,
    DataDirectory,
    DirectoryInUse,
    WrongDirectory,
    describe_os_error,
    is_removed,
)
from lockstep.broker.process.process_output import log_to_stderr, queued_output
from lockstep.broker.settings.addresses import WILDCARD_HOSTS, Listener
from lockstep.build_info import VERSION
from lockstep.failures import CommandFailed
from lockstep.kafka_client import cluster
from lockstep.kafka_client.client import Client
from lockstep.protocol.client_errors import BrokerError, ClientError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataResponse
from lockstep.storage.types import NewerFormat
from lockstep.supervisor.node_certificates import write_certificates
from lockstep.supervisor.node_plan import NodePlan
from lockstep.supervisor.processes_directory import ProcessesDirectory
from lockstep.supervisor.restart_policy import EndAll, RestartPolicy, describe_end

log = logging.getLogger("lockstep.supervisor")

POLL_INTERVAL_SECONDS: Final = 0.3
"""Interval of the checks whether the cluster serves clients."""
STOP_MARGIN_SECONDS: Final = 5.0
"""A stop of a node beside its waiting for clients: handing over, the last flushes, a checkpoint."""
EXIT_KILLED: Final = 1
"""The exit status where a process had to be killed at the stop."""
MAX_LINE_BYTES: Final = 1 << 16
"""LIMIT. A longer line of a process is shown in pieces."""
CHILD_OF: Final = "--child-of"
"""The option of `lockstep serve` by which a process ends with the one that started it."""
_PR_SET_PDEATHSIG: Final = 1
PORT_HINT: Final = "--listen HOST:PORT (node 1's; the others follow from it)"
METRICS_HINT: Final = "lockstep.metrics.listener=HOST:PORT (node 1's; the others follow from it)"


def die_with_parent(parent: int) -> None:
    """Makes the system stop this process once its parent has ended (Linux). Raises CommandFailed
    where it is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise CommandFailed("the command that started this node is gone")


def find_startup_errors(plans: Sequence[NodePlan]) -> list[str]:
    """Returns all reasons why the nodes cannot start: ports and directories that are in use or of others."""
    listeners = list(_listeners(plans))
    found = []
    try:
        check_conflicts(
            (f"{what} of node {node_id} ({_address(each)})", each) for node_id, what, each in listeners
        )
    except CannotListen as error:
        found.append(str(error))
    for node_id, what, listener in listeners:
        try:
            for bound in bind(listener, METRICS_HINT if what == "the metrics" else PORT_HINT):
                bound.close()
        except CannotListen as error:
            found.append(f"node {node_id}: {error}")
    for plan in plans:
        directory = Path(plan.directory)
        try:
            if (directory / META_NAME).exists():
                DataDirectory(directory, plan.node_id, alone=False).close()
        except (DirectoryInUse, WrongDirectory, NewerFormat, OSError) as error:
            text = describe_os_error(error) if isinstance(error, OSError) else str(error)
            found.append(f"node {plan.node_id}: {text}")
    return found


def _listeners(plans: Sequence[NodePlan]) -> Iterator[tuple[int, str, Listener]]:
    for plan in plans:
        for listener in plan.listeners:
            yield plan.node_id, "the clients' listener", listener
        yield plan.node_id, "the nodes' listener", plan.peer_listener
        if plan.metrics_listener is not None and plan.metrics_listener.port:
            yield plan.node_id, "the metrics", plan.metrics_listener


def run(
    path: Path, plans: Sequence[NodePlan], commands: Sequence[Sequence[str]], shutdown_timeout_ms: int
) -> int:
    """Run the nodes until SIGTERM or SIGINT; returns the exit status.

    Args:
        commands: each node's.
        shutdown_timeout_ms: the nodes' `lockstep.shutdown.timeout.ms`.
    Raises CommandFailed where nothing was started.
    """
    try:
        directory = ProcessesDirectory(path, [Path(plan.directory) for plan in plans])
    except (DirectoryInUse, WrongDirectory, NewerFormat) as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(describe_os_error(error)) from None
    try:
        if found := find_startup_errors(plans):
            raise CommandFailed("; ".join(found))
        if any(plan.has_certificate for plan in plans):
            try:
                write_certificates(path, plans)
            except OSError as error:
                raise CommandFailed(describe_os_error(error)) from None
        stop_seconds = 2 * shutdown_timeout_ms / 1000 + STOP_MARGIN_SECONDS
        with queued_output(), log_to_stderr():
            return asyncio.run(Supervisor(path, plans, commands, stop_seconds).run())
    finally:
        directory.close()


class Supervisor:
    """The running command."""

    def __init__(
        self,
        path: Path,
        plans: Sequence[NodePlan],
        commands: Sequence[Sequence[str]],
        stop_seconds: float,
    ) -> None:
        self._path = path
        self._plans = plans
        self._commands = commands
        self._stop_seconds = stop_seconds
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._has_served = False
        self._status = 0

    async def run(self) -> int:
        """Serve until a stop signal; returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        nodes = [
            asyncio.ensure_future(self._run_node(plan, command))
            for plan, command in zip(self._plans, self._commands, strict=True)
        ]
        ready = asyncio.ensure_future(self._report_ready())
        for task in nodes:
            task.add_done_callback(lambda _: self._on_node_over(nodes))
        await self._stopping.wait()
        ready.cancel()
        log.info("stopping %d processes", len(self._processes))
        for process in self._processes.values():
            _signal(process, signal.SIGTERM)
        _, late = await asyncio.wait(nodes, timeout=self._stop_seconds)
        for node_id, process in self._processes.items() if late else ():
            log.error("node %d did not stop within %g s and is killed", node_id, self._stop_seconds)
            _signal(process, signal.SIGKILL)
            self._status = self._status or EXIT_KILLED
        await asyncio.gather(*nodes)
        log.info("stopped")
        return self._status

    def _on_node_over(self, nodes: Sequence[asyncio.Task[None]]) -> None:
        """A node is not started again: the others continue, unless it is a bug, or none is left."""
        over = [task for task in nodes if task.done()]
        if len(over) == len(nodes) or any(task.cancelled() or task.exception() for task in over):
            self._stopping.set()

    async def _run_node(self, plan: NodePlan, command: Sequence[str]) -> None:
        node_id, policy, loop = plan.node_id, RestartPolicy(), asyncio.get_running_loop()
        while not self._stopping.is_set():
            policy.on_start(loop.time())
            try:
                status = await self._run_once(node_id, command)
            except OSError as error:  # no memory or no process left: later there may be
                log.error("node %d cannot be started: %s", node_id, describe_os_error(error))
                status = -signal.SIGABRT
            if self._stopping.is_set():
                if status != 0:
                    log.error("node %d %s at the stop", node_id, describe_end(status))
                    self._status = self._status or EXIT_KILLED
                return
            if status == 0 and is_removed(Path(plan.directory)):
                log.warning("node %d was removed from the cluster: it is not started again", node_id)
                return
            decision = policy.on_end(status, loop.time(), has_served=self._has_served)
            if isinstance(decision, EndAll):
                log.critical("node %d %s: all processes are stopped", node_id, describe_end(status))
                self._status = decision.status
                self._stopping.set()
                return
            log.warning(
                "node %d %s; it is started again in %g s",
                node_id,
                describe_end(status),
                decision.pause_seconds,
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(decision.pause_seconds):
                    await self._stopping.wait()

    async def _run_once(self, node_id: int, command: Sequence[str]) -> int:
        """Run a node's process to its end; returns its status. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which stops the nodes
        )
        self._processes[node_id] = process
        if self._stopping.is_set():
            _signal(process, signal.SIGTERM)
        assert process.stdout is not None and process.stderr is not None
        try:
            # A node's ready line repeats those of the others: it is not shown.
            await asyncio.gather(_show(process.stderr, f"node {node_id} | "), _show(process.stdout, None))
            return await process.wait()
        finally:
            del self._processes[node_id]

    async def _report_ready(self) -> None:
        """Print the ready line once every node lives and each log group has a leader."""
        addresses = [_bootstrap_address(plan.listener) for plan in self._plans]
        while True:
            with contextlib.suppress(ClientError):
                if await self._is_serving(addresses):
                    break
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
        self._has_served = True
        print(
            f"Lockstep {VERSION} ready, serving clients on {addresses[0]} with {len(addresses)} processes, "
            f"the others on {', '.join(addresses[1:])}, data in {self._path}",
            flush=True,
        )

    async def _is_serving(self, addresses: Sequence[str]) -> bool:
        """True if each node serves clients. Raises ClientError where one cannot be reached."""
        nodes = {plan.node_id for plan in self._plans}
        try:
            async with _client(",".join(addresses)) as client:
                found = await cluster.status(client)
        except BrokerError as error:
            if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise
        else:
            alive = {each["node"] for each in found["nodes"] if each["alive"]}
            is_led = bool(found["groups"]) and all(each["leader"] >= 0 for each in found["groups"])
            return is_led and alive >= nodes
        # ACLs keep the status from this command. They keep from no client which nodes there are and which of
        # them is the controller, and a node that knows that serves.
        for address in addresses:
            async with _client(address) as client:
                connection = await client.any_broker()
                known = await connection.call(MetadataRequest(topics=[]), MetadataResponse)
            if known.controller_id not in nodes or not {each.node_id for each in known.brokers} >= nodes:
                return False
        return True


def _client(addresses: str) -> Client:
    return Client(addresses, client_id="lockstep-serve", timeout_s=5)


async def _show(stream: asyncio.StreamReader, prefix: str | None) -> None:
    """Copy lines to standard error with a prefix until the stream ends; without one, drop them."""
    rest = b""
    while data := await stream.read(MAX_LINE_BYTES):
        if prefix is None:
            continue
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            lines, rest = [*lines, rest], b""
        sys.stderr.write("".join(f"{prefix}{line.decode(errors='replace')}\n" for line in lines))
    if rest and prefix is not None:
        sys.stderr.write(f"{prefix}{rest.decode(errors='replace')}\n")


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _bootstrap_address(listener: Listener) -> str:
    return host_and_port("localhost" if listener.host in WILDCARD_HOSTS else listener.host, listener.port)


def _address(listener: Listener) -> str:
    return host_and_port(listener.host, listener.port)
