"""Three nodes on this machine, for `make cluster`: `lockstep serve` once for each, all of them until Ctrl-C.

Ports and directories of all nodes are checked before the first one starts, so that all of them start or none.
Each line of a node is shown with its number, and a line says when the cluster is ready. A node that ends is
told, one that died with the command that starts it again; it is not started again here, so that one can be
killed to see what happens. Exit status: 0 when stopped, 1 when no node is left, or none could be started, 2
for a file of settings that cannot be used.
"""

import argparse
import asyncio
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

from lockstep.broker.network.listeners import CannotListen, bind, host_and_port
from lockstep.broker.node.data_directory import (
    PROCESSES_NAME,
    DataDirectory,
    DirectoryInUse,
    WrongDirectory,
)
from lockstep.broker.settings.addresses import WILDCARD_HOSTS, Listener
from lockstep.broker.settings.config import Settings
from lockstep.broker.settings.loader import load
from lockstep.broker.settings.properties import ConfigError
from lockstep.kafka_client import cluster
from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import ClientError
from lockstep.storage.types import NewerFormat
from lockstep.supervisor.node_plan import PEER_PORT_OFFSET, metrics_listener, peer_port, provisional_peers

STOP_SECONDS = 20
ANOTHER_PORT = "make cluster LISTEN=HOST:PORT (node 1's; all others follow from it)"
POLL_INTERVAL_SECONDS = 0.3
"""Between two looks at whether the cluster is ready."""
REFUSED_STATUSES = (1, 2)
"""Of a node that said why it cannot run: starting it again as it is would not help."""


def commands(options: argparse.Namespace) -> dict[int, list[str]]:
    """The command of each node, by its number. Raises ConfigError, OSError for the file of settings."""
    settings = load_settings(options) if options.config else None
    numbers = range(1, options.nodes + 1)
    host, port = options.listen
    peers = ",".join(f"{number}@localhost:{first_peer_port(options) + number - 1}" for number in numbers)
    return {
        number: [
            str(Path(sys.executable).parent / "lockstep"),
            "serve",
            *("--node-id", str(number)),
            *("--listen", f"{host}:{port + number - 1}"),
            *("--data-dir", str(Path(options.data_dir) / str(number))),
            *("--peers", peers),
            *(("--config", options.config) if options.config else ()),
            *metrics_option(settings, number),
        ]
        for number in numbers
    }


def load_settings(options: argparse.Namespace) -> Settings:
    """What the file of settings has for all nodes. Raises ConfigError, OSError."""
    flags = {
        "node.id": "1",
        "listeners": "localhost:0",
        "log.dirs": str(options.data_dir),
        "lockstep.peers": provisional_peers(2),
    }
    return load(Path(options.config), flags=flags)


def metrics_option(settings: Settings | None, number: int) -> tuple[str, ...]:
    """A node's own listener for metrics, where the file of settings has one."""
    own = None if settings is None else metrics_listener(settings, number)
    if own is None:
        return ()
    return "--set", f"lockstep.metrics.listener={host_and_port(own.host, own.port)}"


def first_peer_port(options: argparse.Namespace) -> int:
    """Node 1's port for the other nodes."""
    _, port = options.listen
    chosen: int = options.peer_port or peer_port(port)
    return chosen


def find_startup_errors(options: argparse.Namespace) -> list[str]:
    """Why the nodes cannot start: ports that are taken, directories that are, or that belong to others."""
    host, port = options.listen
    found = []
    if is_of_a_node_alone(Path(options.data_dir)):
        return [
            f"{options.data_dir} has the data of a broker that runs alone (`make serve`); choose "
            f"another directory: make cluster DATA_DIR={options.data_dir.rstrip('/')}-cluster"
        ]
    if (Path(options.data_dir) / PROCESSES_NAME).exists():
        return [
            f"{options.data_dir} holds the nodes of `lockstep serve --processes`; choose another directory: "
            f"make cluster DATA_DIR={options.data_dir.rstrip('/')}-cluster"
        ]
    for number in range(1, options.nodes + 1):
        for listener in (
            Listener("CLIENTS", host, port + number - 1),
            Listener("PEERS", "localhost", first_peer_port(options) + number - 1),
        ):
            try:
                for each in bind(listener, ANOTHER_PORT):
                    each.close()
            except CannotListen as error:
                found.append(f"node {number}: {error}")
        directory = Path(options.data_dir) / str(number)
        try:
            if (directory / "meta.properties").exists() or (directory.exists() and not directory.is_dir()):
                DataDirectory(directory, number, alone=False).close()
        except (DirectoryInUse, WrongDirectory, NewerFormat, OSError) as error:
            found.append(f"node {number}: {error}")
    return found


def bootstrap(options: argparse.Namespace) -> str:
    """Where clients on this machine reach the nodes."""
    host, port = options.listen
    host = "localhost" if host in WILDCARD_HOSTS else host
    return ",".join(f"{host}:{port + number}" for number in range(options.nodes))


async def say_when_ready(addresses: str, stopping: threading.Event) -> None:
    """Wait until each log group has a leader, as the node that answers knows it."""
    while not stopping.is_set():
        try:
            async with Client(addresses, client_id="make-cluster", timeout_s=5) as client:
                found = await cluster.status(client)
        except ClientError:
            found = {"groups": []}
        if found["groups"] and all(each["leader"] >= 0 for each in found["groups"]):
            served = addresses.replace(",", " and ")
            print(f"cluster | serving clients on {served}; Ctrl-C stops all nodes", flush=True)
            return
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


def address(text: str) -> tuple[str, int]:
    """An argument type: HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def watch(number: int, command: list[str], process: subprocess.Popen[str], stopping: threading.Event) -> None:
    """Show what a node says until it ends; then how it ended."""
    assert process.stdout is not None
    for line in process.stdout:
        print(f"node {number} | {line}", end="", flush=True)
    status = process.wait()
    if not stopping.is_set():
        print(f"cluster | node {number} {ending(status, command)}", flush=True)


def ending(status: int, command: list[str]) -> str:
    """What became of a node, for people."""
    if status == 0:
        return "has stopped"
    if status in REFUSED_STATUSES:
        return f"cannot run, it said why (status {status})"
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"{how}; to start it again: {shlex.join(command)}"


def is_of_a_node_alone(directory: Path) -> bool:
    """True if a broker was run in the very directory, and no cluster below it yet."""
    return (directory / "meta.properties").exists() and not (directory / "1" / "meta.properties").exists()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(description="Run a cluster on this machine.")
    root.add_argument("--data-dir", default="data", help="node N's data are in DIR/N")
    root.add_argument("--nodes", type=int, default=3)
    root.add_argument("--config", metavar="FILE", help="settings of every node, a properties file")
    root.add_argument(
        "--listen",
        type=address,
        default=("localhost", 9092),
        metavar="HOST:PORT",
        help="of node 1 for clients; the next ports are the other nodes' (default: localhost:9092)",
    )
    root.add_argument(
        "--peer-port", type=int, help=f"of node 1 between nodes (default: {PEER_PORT_OFFSET} above)"
    )
    return root


def main() -> int:
    options = parser().parse_args()
    if options.nodes < 2:
        parser().error("a cluster has two nodes or more; one alone is `make serve`")

    try:
        commands_by_node = commands(options)
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        print(f"cluster | {options.config}: {error}\ncluster | no node was started", flush=True)
        return 2
    if found := find_startup_errors(options):
        print("".join(f"cluster | {each}\n" for each in [*found, "no node was started"]), end="", flush=True)
        return 1

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    stopping = threading.Event()
    running: list[tuple[subprocess.Popen[str], threading.Thread]] = []
    status = 1
    try:
        for number, command in commands_by_node.items():
            # In a session of its own: Ctrl-C is for us, and we stop the nodes.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            thread = threading.Thread(target=watch, args=(number, command, process, stopping), daemon=True)
            running.append((process, thread))
            thread.start()
        threading.Thread(
            target=lambda: asyncio.run(say_when_ready(bootstrap(options), stopping)), daemon=True
        ).start()
        for _, thread in running:
            thread.join()
        print("cluster | no node is left", flush=True)
    except KeyboardInterrupt:
        status = 0
    stopping.set()
    for again in (signal.SIGINT, signal.SIGTERM):
        signal.signal(again, signal.SIG_IGN)
    for process, _ in running:
        process.terminate()
    for process, thread in running:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        thread.join(STOP_SECONDS)
    return status


if __name__ == "__main__":
    sys.exit(main())
