"""What a run is made of: which brokers, which clients, and what came out.

Owns: `World` (starts each broker and each client at most once, and only when a case asks for it) and
`Outcome` with its JSON file, from which `compat_tests.report` makes the table. A broker that could not start
is an error of every case that needs it; one that died is started again for the next case.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compat_tests.clients.aio_kafka import AioKafka
from compat_tests.clients.confluent import Confluent
from compat_tests.clients.driven import Driven
from compat_tests.clients.face import Client
from compat_tests.clients.go import FranzGo, KafkaGo, Sarama
from compat_tests.clients.java import Java, Java34, Java39, Java43
from compat_tests.clients.kafka_python import KafkaPython
from compat_tests.clients.kafka_python_2 import KafkaPython2
from compat_tests.clients.kcat import Kcat
from compat_tests.clients.node import KafkaJs, Platformatic
from compat_tests.clients.security import PLAINTEXT, Security
from compat_tests.clusters import LockstepThree
from compat_tests.connect import ConnectWorker
from compat_tests.java_driver import JavaDriver
from compat_tests.kafka_jars import SHORT_LIVED, ToolchainMissing, require_java, skip_or_fail
from compat_tests.line_driver import LineDriver
from compat_tests.rust_driver import rskafka_driver
from compat_tests.secured.brokers import SecuredKafka, SecuredLockstep, SecuredTarget
from compat_tests.spark_driver import RELEASES, SPARK_VERSION, connector_driver, spark_driver
from compat_tests.targets import ROOT, KafkaTarget, LockstepTarget, Target, TargetFailed

TARGETS = ("kafka", "lockstep", "lockstep-3")
"""Apache Kafka first: an expectation that fails there is a mistake of the case."""
_ON_THREE = frozenset(
    {"test_nodes", "test_node_down", "test_wire_admin", "test_wire_cluster", "test_wire_groups"}
    | {"test_racks", "test_restart", "test_restart_admin", "test_reassigning", "test_wire_txn_offsets"}
    | {"test_tools_transactions", "test_wire_txn_produce", "test_latest_offset", "test_wire_absent"}
)
_ON_THREE_BY_ONE_CLIENT = frozenset({"test_admin", "test_groups", "test_locks", "test_transactions"})
_THAT_CLIENT = Confluent.name
CLIENTS: Mapping[str, type[Client]] = {
    each.name: each
    for each in (
        Java34,
        Java39,
        Java43,
        Java,
        Confluent,
        Kcat,
        KafkaPython,
        KafkaPython2,
        AioKafka,
        KafkaJs,
        Platformatic,
        FranzGo,
        Sarama,
        KafkaGo,
    )
}
SECOND_VERSIONS = frozenset({Java34.name, Java39.name, Java43.name, KafkaPython2.name})
"""Clients of which a newer version is here as well: their cases are in the tier `rest`."""
_SHARES = {"java": "jvm", "go": "compiled", "node": "compiled"}
"""Adapter module -> which part of a run in several processes it belongs to; the others are Python's."""
QUICK_TIMEOUTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
"""How often a broker looks for transactions that took too long; by default every 10 s."""
WIRE = "wire"
TOOLS = "Kafka's tools"
CONNECT = "Kafka Connect"
RSKAFKA = "rskafka"
STREAMS = "Kafka Streams"
COLUMNS: Mapping[str, str] = {
    "tool": TOOLS,
    "connect": CONNECT,
    "rskafka": RSKAFKA,
    "word_count": STREAMS,
}
"""Fixture -> the column of the cases that use it, for cases without a client among their parameters."""
SPARKS = {version: f"Spark {version}" for version in sorted(RELEASES)}
"""Version -> its column."""
_SECURED = "-secured"
_WANTED = "LOCKSTEP_COMPAT_TARGETS"
_WHOLE = "LOCKSTEP_SPARK_CASES"
_SPARK_VERSIONS = "LOCKSTEP_SPARK_VERSIONS"
RESULTS = ROOT / ".cache" / "compat" / "results.json"
"""Of the newest run, whatever it ran."""
WHOLE_RESULTS = RESULTS.with_name("whole.json")
"""Of the newest run of every case to its end, for `compat_tests.report --from`."""

LIMIT = "the client's own limit: "
"""How a skipped case begins its reason where the client cannot do it."""
PASSED, FAILED, LIMITED, MISSING = "passed", "failed", "limited", "missing"
"""`limited`: the client cannot do it. `missing`: a tool is not installed on this machine."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case, one client, one broker."""

    area: str
    case: str
    client: str
    target: str
    result: str
    reason: str = ""
    seconds: float = 0.0
    tries: int = 1


class World:
    """Brokers and clients of one run; close it at the end."""

    def __init__(self) -> None:
        self._targets: dict[str, Target] = {}
        self._broken: dict[str, str] = {}
        self._clients: dict[tuple[str, str, Security], Client] = {}
        self._drivers: dict[str, LineDriver] = {}
        self._workers: dict[str, ConnectWorker] = {}
        self._share = ""

    def enter(self, share: str, *, failed: bool) -> list[Path]:
        """Another part of the run begins: what the one before it started would only take processor time
        from it. As `close`."""
        if share == self._share:
            return []
        self._share = share
        return self.close(failed=failed)

    def target(self, name: str) -> Target:
        """The running broker. TargetFailed (the same each time) when it cannot start."""
        if name in self._broken:
            raise TargetFailed(self._broken[name])
        found = self._targets.get(name)
        try:
            if found is None:
                found = self._targets[name] = self._made(name)
                found.start()
            elif not found.running:
                found.restart()
        except TargetFailed as failed:
            self._broken[name] = str(failed)
            raise
        return found

    def secured(self, name: str) -> SecuredTarget:
        """The running broker of `compat_tests.secured`, of that kind. TargetFailed as for `target`."""
        found = self.target(name + _SECURED)
        assert isinstance(found, SecuredTarget)
        return found

    @staticmethod
    def _made(name: str) -> Target:
        if name.startswith("kafka"):
            require_java()
        if name.endswith(_SECURED):
            return (SecuredKafka if name.startswith("kafka") else SecuredLockstep)(QUICK_TIMEOUTS)
        if name == "kafka":
            return KafkaTarget(QUICK_TIMEOUTS, heap="512M", jvm=SHORT_LIVED)
        return (LockstepThree if name == LockstepThree.name else LockstepTarget)(QUICK_TIMEOUTS)

    def client(self, name: str, target_name: str) -> Client:
        """The client of that name, connected to that broker. Skips (fails in CI) when not installed."""
        return self.connected(name, self.target(target_name).bootstrap)

    def connected(self, name: str, bootstrap: str, security: Security = PLAINTEXT) -> Client:
        """The client of that name, for that listener. Skips as `client`."""
        key = (name, bootstrap, security)
        if key not in self._clients:
            try:
                kind = CLIENTS[name]
                made = (
                    kind(bootstrap, self._line_driver(kind), security=security)
                    if issubclass(kind, Driven)
                    else kind(bootstrap, security=security)
                )
            except ToolchainMissing as missing:
                skip_or_fail(str(missing))
                raise
            self._clients[key] = made
        return self._clients[key]

    def driver(self) -> JavaDriver:
        """The one JVM for the judge's Java client and Kafka's tools, for both brokers."""
        require_java("javac")
        found = self._line_driver(Java)
        assert isinstance(found, JavaDriver)
        return found

    def rskafka(self) -> LineDriver:
        """The one process with rskafka, for all brokers. Skips (fails in CI) when not installed."""
        if RSKAFKA not in self._drivers:
            try:
                self._drivers[RSKAFKA] = rskafka_driver()
            except ToolchainMissing as missing:
                skip_or_fail(str(missing))
                raise
        return self._drivers[RSKAFKA]

    def spark(self, version: str = SPARK_VERSION) -> LineDriver:
        """The one Spark session of a version, for all brokers. Skips (fails in CI) when not installed."""
        name = SPARKS[version]
        if name not in self._drivers:
            try:
                self._drivers[name] = spark_driver(version)
            except ToolchainMissing as missing:
                skip_or_fail(str(missing))
                raise
        return self._drivers[name]

    def spark_connector(self) -> LineDriver:
        """The one session with our own source and sink. Skips (fails in CI) when not installed."""
        name = "spark_connector"
        if name not in self._drivers:
            try:
                self._drivers[name] = connector_driver()
            except ToolchainMissing as missing:
                skip_or_fail(str(missing))
                raise
        return self._drivers[name]

    def connect(self, target_name: str) -> ConnectWorker:
        """The one Kafka Connect worker on that broker. Skips (fails in CI) when not installed."""
        if target_name not in self._workers:
            bootstrap = self.target(target_name).bootstrap
            try:
                self._workers[target_name] = ConnectWorker(bootstrap)
            except ToolchainMissing as missing:
                skip_or_fail(str(missing))
                raise
        worker = self._workers[target_name]
        if not worker.running:
            worker.start()
        return worker

    def _line_driver(self, kind: type[Driven]) -> LineDriver:
        """One process per client, for both brokers."""
        if kind.name not in self._drivers:
            self._drivers[kind.name] = kind.start_driver()
        return self._drivers[kind.name]

    def close(self, *, failed: bool) -> list[Path]:
        """End everything; after a failure the brokers' logs are kept and their paths returned."""
        for client in self._clients.values():
            client.close()
        for driver in self._drivers.values():
            driver.close()
        logs = []
        for worker in self._workers.values():
            if failed and worker.log_path.exists():
                logs.append(worker.keep_log())
            worker.close()
        for target in self._targets.values():
            if failed and target.log_path.exists():
                logs.append(target.keep_log())
            target.close()
        for each in (self._clients, self._drivers, self._workers, self._targets):
            each.clear()
        return logs


def share_of(client: str) -> str:
    """Which part of a run a client's cases belong to; tools and bare connections go with the JVM."""
    kind = CLIENTS.get(client)
    return "jvm" if kind is None else _SHARES.get(kind.__module__.rpartition(".")[2], "python")


def versions() -> dict[str, str]:
    """Every client's version; the reason where it is not installed."""
    found = {}
    for name, kind in CLIENTS.items():
        try:
            found[name] = kind.version()
        except ToolchainMissing as missing:
            found[name] = f"missing ({missing})"
    return found


def save(outcomes: list[Outcome], path: Path = RESULTS) -> None:
    """Write a run's outcomes as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"versions": versions(), "outcomes": [asdict(each) for each in outcomes]}
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def is_whole(arguments: Sequence[str], *narrowed: object) -> bool:
    """Whether pytest's arguments and the environment have every case run; `narrowed`: -k, -m and the like."""
    directories = {Path(each).resolve() for each in arguments}
    by_environment = {_WANTED, _SPARK_VERSIONS} & set(os.environ)
    return bool(directories & {ROOT, ROOT / "compat_tests"}) and not any(narrowed) and not by_environment


def load(path: Path = RESULTS) -> tuple[dict[str, str], list[Outcome]]:
    """Versions and outcomes of a saved run."""
    data: dict[str, Any] = json.loads(path.read_text())
    return data["versions"], [Outcome(**each) for each in data["outcomes"]]


def wanted_targets() -> tuple[str, ...]:
    """LOCKSTEP_COMPAT_TARGETS=kafka (or lockstep, or lockstep-3) narrows a run."""
    asked = os.environ.get(_WANTED)
    return tuple(name for name in TARGETS if asked is None or name in asked.split(","))


def wanted_threes() -> tuple[str, ...]:
    """Three nodes of which kind: Apache Kafka's only where a run is narrowed to them."""
    asked = wanted_targets()
    return asked if asked == ("kafka",) else tuple(name for name in asked if name == LockstepThree.name)


def both_brokers() -> bool:
    """Does this run compare Lockstep with Apache Kafka?"""
    return {"kafka", "lockstep"} <= set(wanted_targets())


def is_left_out(target: str, module: str, clients: Collection[str]) -> bool:
    """Unless they are asked for by name, three nodes serve the cases that tell them from one: metadata,
    leaders, coordinators, administration, a new start.

    Args: clients: of the case, a writer and a reader, say; none where it uses none of `CLIENTS`.
    """
    if target == LockstepThree.name and module.startswith("compat_tests.secured."):
        return True
    if os.environ.get(_WANTED) is not None:
        return False
    name = module.rpartition(".")[2]
    on_three = name in _ON_THREE or (name in _ON_THREE_BY_ONE_CLIENT and _THAT_CLIENT in clients)
    return target == LockstepThree.name and not on_three


def is_left_out_of_spark(target: str, version: str, flags: Collection[str]) -> bool:
    """Spark's cases take a second or more each: LOCKSTEP_SPARK_CASES=whole runs all of them on every broker
    with both versions. Else a case runs with the newest version, on three nodes where its flags say
    "three", and with the other version where they say "both"; not at all where they say "whole", and on three
    nodes never where they say "one".
    LOCKSTEP_SPARK_VERSIONS=4.0.0 narrows a run."""
    newest = version == SPARK_VERSION
    if target == LockstepThree.name and "one" in flags:
        return True
    asked = os.environ.get(_SPARK_VERSIONS, version).split(",")
    if version not in asked or ("newest" in flags and not newest):
        return True
    if os.environ.get(_WHOLE) == "whole":
        return False
    on_three = target == LockstepThree.name and os.environ.get(_WANTED) is None
    wanted = ("three" in flags and newest) if on_three else (newest or "both" in flags)
    return "whole" in flags or not wanted
