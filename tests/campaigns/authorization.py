"""`python -m tests.campaigns.authorization --pairs 100000`: random ACLs, on Apache Kafka and on Lockstep.

Owns: the sets of ACLs, drawn from a seed; the two brokers, in turn with `allow.everyone.if.no.acl.found`
false and true; the comparison of each response's errors with their places, authorized operations and lists
(`authorization_requests.py`); and the recorded outcomes of Apache Kafka that CI holds Lockstep against
(`--record`). The administrator of both is at 127.0.0.1, the clients at 127.0.0.2 and 127.0.0.3, all as
User:ANONYMOUS. Rounds are recorded as they go, and `--resume` continues the last run.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from compat_tests import raw_tables
from compat_tests.kafka_jars import SHORT_LIVED
from compat_tests.probe import HOST
from compat_tests.targets import KafkaTarget, LockstepTarget, Target
from tests.campaigns import evidence
from tests.campaigns.authorization_requests import (
    GROUPS,
    IDS,
    ROWS,
    TOPICS,
    Draw,
    Fields,
    Request,
    outcome,
)

NAME: Final = "authorization"
ADMIN, CLIENTS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
EVERYONE: Final = "allow.everyone.if.no.acl.found"
RECORDED: Final = Path(__file__).parent / "recorded" / "authorization.json"
REQUESTS_OF_A_SET: Final = 25
SETS_OF_A_ROUND: Final = 40
WAIT_SECONDS: Final = 30.0
ALLOW, DENY = 3, 2
CLUSTER: Final = 4
TYPES: Final = {
    2: ("*", "t", "ta", "tab", "tb", "tc"),
    3: ("*", "g", "ga", "gab"),
    5: ("*", "x", "xa"),
    CLUSTER: ("kafka-cluster",),
}
"""Types of resources, and the names that ACLs have."""
OPERATIONS: Final = {
    2: (2, 3, 4, 5, 6, 7, 8, 10, 11),
    3: (2, 3, 6, 8, 10, 11),
    5: (2, 4, 8),
    CLUSTER: (2, 5, 7, 8, 9, 10, 11, 12),
}


class Connection:
    """A connection from one address of this machine, which speaks by Lockstep's message tables."""

    def __init__(self, port: int, source: str) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=60, source_address=(source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, request: Request) -> Fields:
        """The response, as a dictionary."""
        api, version, fields = request
        self._socket.sendall(raw_tables.request_frame(api, version, 1, fields))
        (size,) = struct.unpack(">i", self._exactly(4))
        return raw_tables.parse_response(api, version, self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


def acl(
    kind: int, name: str, pattern: int, principal: str, host: str, operation: int, permission: int
) -> Fields:
    """An ACL as CreateAcls has it."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": principal,
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


ADMIN_ACLS: Final = [acl(CLUSTER, "kafka-cluster", 3, "User:ANONYMOUS", ADMIN, 2, ALLOW)]


class Broker:
    """One of the two brokers, with its topics, groups and ids; ACLs change by `put`."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._set: list[Fields] = []
        self.topic_ids: dict[str, bytes] = {}

    def start(self) -> None:
        """Start with everything allowed, create what the requests are about, and take that back."""
        self.target.start()
        self._connect()
        call = self._admin.call
        wanted: list[Fields] = [
            {"name": each, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for each in TOPICS
        ]
        call(("create_topics", 7, {"topics": wanted, "timeout_ms": 10_000}))
        self._until(lambda: len(self._ids()) == len(TOPICS))
        self.topic_ids = self._ids()
        for kind, keys in enumerate((GROUPS, IDS)):
            for key in keys:
                self._served(("find_coordinator", 4, {"key_type": kind, "coordinator_keys": [key]}))
        topics = [
            {
                "name": each,
                "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}],
            }
            for each in TOPICS
        ]
        for group in GROUPS:
            self._served(("offset_commit", 8, {"group_id": group, "topics": topics}))
        for name in IDS:
            fields = {"transactional_id": name, "transaction_timeout_ms": 60_000}
            self._served(("init_producer_id", 4, fields | {"producer_id": -1, "producer_epoch": -1}))
        self._create(ADMIN_ACLS)

    def deny_without_acls(self) -> None:
        """Restart with `allow.everyone.if.no.acl.found=false`."""
        self._close()
        self.target.stop()
        self.target.settings[EVERYONE] = "false"
        if isinstance(self.target, KafkaTarget):
            path = self.target.directory / "server.properties"
            path.write_text(path.read_text().replace(f"{EVERYONE}=true", f"{EVERYONE}=false"))
        self.target.start()
        self._connect()
        self._until(lambda: self._acl_count() == len(ADMIN_ACLS))
        everything = [acl(kind, "*", 3, "User:ANONYMOUS", ADMIN, 2, ALLOW) for kind in (2, 3, 5)]
        self._create(everything)
        for group in GROUPS:
            self._served(("offset_fetch", 8, {"groups": [{"group_id": group, "topics": None}]}))
        for name in IDS:
            self._served(("describe_transactions", 0, {"transactional_ids": [name]}))
        self._delete(everything)

    def put(self, acls: Sequence[Fields]) -> None:
        """These ACLs are in force, beside the administrator's."""
        self._delete(self._set)
        self._create(acls)
        self._set = list(acls)

    def outcome(self, source: str, row: int, seed: str) -> list[str]:
        """What the broker says to one drawn request."""
        request = ROWS[row](Draw(seed, self.topic_ids))
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        for attempt in range(50):
            try:
                response = self._clients[source].call(request)
            except (ConnectionError, TimeoutError) as error:
                self._clients[source] = Connection(self.target.port, source)
                return [f"closed: {error}"]
            if attempt == 0 or not _is_loading(response):
                lines = outcome(request[0], response, names)
            if not _is_loading(response):
                break
            time.sleep(0.05)
        return lines

    def close(self) -> None:
        self._close()
        self.target.close()

    def _connect(self) -> None:
        self._admin = Connection(self.target.port, ADMIN)
        self._clients = {each: Connection(self.target.port, each) for each in CLIENTS}

    def _close(self) -> None:
        for each in (self._admin, *self._clients.values()):
            each.close()

    def _create(self, acls: Sequence[Fields]) -> None:
        before = self._acl_count()
        distinct = {json.dumps(each) for each in acls}
        results = self._admin.call(("create_acls", 3, {"creations": list(acls)}))["results"]
        assert all(each["error_code"] == 0 for each in results), results
        self._until(lambda: self._acl_count() == before + len(distinct))

    def _delete(self, acls: Sequence[Fields]) -> None:
        if not acls:
            return
        filters = [
            {
                "resource_type_filter": each["resource_type"],
                "resource_name_filter": each["resource_name"],
                "pattern_type_filter": each["resource_pattern_type"],
                "principal_filter": each["principal"],
                "host_filter": each["host"],
                "operation": each["operation"],
                "permission_type": each["permission_type"],
            }
            for each in {json.dumps(each): each for each in acls}.values()
        ]
        before = self._acl_count()
        results = self._admin.call(("delete_acls", 3, {"filters": filters}))["filter_results"]
        assert all(len(each["matching_acls"]) == 1 for each in results), results
        self._until(lambda: self._acl_count() == before - len(filters))

    def _acl_count(self) -> int:
        any_acl = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
        any_entry = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
        found = self._admin.call(("describe_acls", 3, any_acl | any_entry))
        return sum(len(each["acls"]) for each in found["resources"])

    def _ids(self) -> dict[str, bytes]:
        found = self._admin.call(("metadata", 12, {"topics": [{"name": each} for each in TOPICS]}))["topics"]
        return {
            each["name"]: each["topic_id"].bytes
            for each in found
            if not each["error_code"] and all(part["leader_id"] >= 0 for part in each["partitions"])
        }

    def _served(self, request: Request) -> None:
        """Repeat a request until nothing in its response is an error."""
        self._until(lambda: not any(_codes(self._admin.call(request))), str(request))

    def _until(self, is_true: Any, what: str = "") -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_true():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.target.name}: {what}")
            time.sleep(0.002)


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key.endswith("error_code"):
                yield each
            yield from _codes(each)
    elif isinstance(value, list):
        for each in value:
            yield from _codes(each)


def _is_loading(response: Fields) -> bool:
    """A coordinator, or a block of producer ids, is not there yet."""
    return any(each in (14, 15, 16, 51) for each in _codes(response))


def draw_acls(draw: random.Random) -> list[Fields]:
    """Up to eight ACLs that meet each other. None denies the administrator anything."""
    acls = []
    for _ in range(draw.randint(0, 8)):
        kind = draw.choice([2, 2, 2, 3, 3, 5, CLUSTER, CLUSTER])
        permission = draw.choice([ALLOW, ALLOW, ALLOW, DENY])
        hosts = ["127.0.0.2", "127.0.0.3", "127.0.0.2/31", "127.0.0.3/32"]
        if kind != CLUSTER or permission == ALLOW:
            hosts += ["*", "*", "*", "127.0.0.0/8", "10.0.0.0/8"]
        name = draw.choice(TYPES[kind])
        pattern = 4 if kind != CLUSTER and draw.random() < 0.4 else 3
        principal = draw.choice(["User:ANONYMOUS", "User:ANONYMOUS", "User:*", "User:other"])
        acls.append(
            acl(kind, name, pattern, principal, draw.choice(hosts), draw.choice(OPERATIONS[kind]), permission)
        )
    return acls


def questions(seed: int, number: int) -> tuple[list[Fields], list[tuple[str, int, str]]]:
    """The ACLs of a set, and its requests: the client's address, the row and a seed."""
    draw = random.Random(f"{seed}/{number}")
    acls = draw_acls(draw)
    return acls, [
        (draw.choice(CLIENTS), draw.randrange(len(ROWS)), f"{seed}/{number}/{each}")
        for each in range(REQUESTS_OF_A_SET)
    ]


def brokers(*, everyone: bool, kafka: bool = True) -> list[Broker]:
    """The brokers, started; the second one is Apache Kafka."""
    settings = {"authorizer.class.name": AUTHORIZER, EVERYONE: "true", "auto.create.topics.enable": "true"}
    made = [Broker(LockstepTarget(settings))]
    try:
        if kafka:
            more = {"group.coordinator.rebalance.protocols": "classic", **settings}
            made.append(Broker(KafkaTarget(more, heap="512M", jvm=SHORT_LIVED)))
        for each in made:
            each.start()
            if not everyone:
                each.deny_without_acls()
    except BaseException:
        for each in made:
            each.target.close()
        raise
    return made


class Campaign:
    """A run. Args: pairs: how many requests, of both kinds of brokers together."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.asked: Counter[str] = Counter()
        self.denials = 0
        self.differences: list[str] = []

    def round(self, pair: Sequence[Broker], first: int, sets: int) -> None:
        """Ask both about these sets."""
        for number in range(first, first + sets):
            acls, asked = questions(self.seed, number)
            for broker in pair:
                broker.put(acls)
            for source, row, words in asked:
                ours, kafkas = (each.outcome(source, row, words) for each in pair)
                self.asked[ROWS[row].__name__] += 1
                self.denials += any(code in line for line in kafkas for code in ("=29", "=30", "=31", "=53"))
                if ours != kafkas:
                    self.differences.append(_difference(acls, source, row, words, ours, kafkas))

    def figures(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "pairs": sum(self.asked.values()),
            "with_a_denial": self.denials,
            "differences": len(self.differences),
            "requests": dict(sorted(self.asked.items())),
        }


def _difference(
    acls: list[Fields], source: str, row: int, seed: str, ours: list[str], kafkas: list[str]
) -> str:
    request = ROWS[row](Draw(seed, {}))
    lines = [f"--- {request} from {source}", *(f"    {list(each.values())}" for each in acls)]
    lines += [f"  lockstep: {each}" for each in ours if each not in kafkas]
    lines += [f"  kafka:    {each}" for each in kafkas if each not in ours]
    return "\n".join(lines)


def record(seed: int, sets: int) -> dict[str, Any]:
    """The outcomes of Apache Kafka, as CI reads them: each different one once."""
    outcomes: dict[str, int] = {}
    recorded: dict[str, list[int]] = {}
    for everyone in (False, True):
        lockstep, kafka = brokers(everyone=everyone)
        lockstep.close()
        try:
            indexes = recorded[str(everyone).lower()] = []
            for number in range(sets):
                acls, asked = questions(seed, number)
                kafka.put(acls)
                for each in asked:
                    text = "\n".join(kafka.outcome(*each))
                    indexes.append(outcomes.setdefault(text, len(outcomes)))
        finally:
            kafka.close()
    return {"seed": seed, "sets": sets, "outcomes": list(outcomes), **recorded}


def against_recorded(everyone: bool, sets: int) -> tuple[int, list[str]]:
    """The number of requests to Lockstep alone, and where it differs from the record."""
    kept = json.loads(RECORDED.read_text())
    outcomes, indexes = kept["outcomes"], kept[str(everyone).lower()]
    differences: list[str] = []
    (broker,) = brokers(everyone=everyone, kafka=False)
    try:
        for number in range(sets):
            acls, asked = questions(kept["seed"], number)
            broker.put(acls)
            for place, each in enumerate(asked):
                kafkas = outcomes[indexes[number * REQUESTS_OF_A_SET + place]].split("\n")
                ours = broker.outcome(*each)
                if [line for line in kafkas if line] != ours:
                    differences.append(_difference(acls, *each, ours, kafkas))
    finally:
        broker.close()
    return sets * REQUESTS_OF_A_SET, differences


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m tests.campaigns.{NAME}")
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--record", action="store_true", help="write the outcomes that CI reads")
    parser.add_argument("--forget", action="store_true", help="add nothing to docs/evidence")
    options = parser.parse_args(words)
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    if options.record:
        RECORDED.parent.mkdir(exist_ok=True)
        kept = record(seed, options.pairs // REQUESTS_OF_A_SET // 2)
        RECORDED.write_text(json.dumps(kept, separators=(",", ":")) + "\n")
        print(f"{options.pairs} requests, {len(kept['outcomes'])} different outcomes, seed {seed}")
        return 0
    return _run(seed, options.pairs, options.resume, options.forget)


def _run(seed: int, pairs: int, resume: bool, forget: bool) -> int:
    first = 0
    runs = evidence.load_runs(NAME)
    before: dict[str, Any] = {}
    if resume and runs and not runs[-1].get("done", True):
        before = runs[-1]
        seed, first = before["seed"], before["next_set"]
    campaign = Campaign(seed)
    print(f"repeat with: python -m tests.campaigns.{NAME} --pairs {pairs} --seed {seed}", flush=True)
    open_run = None if forget else evidence.OpenRun(NAME)
    last = first + pairs // REQUESTS_OF_A_SET
    while first < last:
        everyone = first // SETS_OF_A_ROUND % 2 == 1
        sets = min(SETS_OF_A_ROUND, last - first)
        pair = brokers(everyone=everyone)
        try:
            campaign.round(pair, first, sets)
        finally:
            for each in pair:
                each.close()
        first += sets
        print(f"{sum(campaign.asked.values())} pairs, {len(campaign.differences)} differences", flush=True)
        if open_run is not None:
            open_run.save(campaign.figures() | {"next_set": first, "done": first >= last})
    for text in list({each.split("'")[1]: each for each in campaign.differences}.values()):
        print(text)  # one of each API
    return 1 if campaign.differences else 0


if __name__ == "__main__":
    sys.exit(main())
