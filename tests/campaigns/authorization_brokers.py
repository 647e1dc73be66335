"""The two brokers of the authorization campaign: Apache Kafka and Lockstep, each with one authorizer.

Owns: the connections, one from each client's address; what the requests are about (topics, groups, ids); the
ACLs in force, which `put` replaces; the requests of a set, sent at once and answered in order. The
administrator of both is at 127.0.0.1, the clients at 127.0.0.2 and 127.0.0.3, all as User:ANONYMOUS.
Invariant: after `put` the broker lists these ACLs and no others. Does not: draw or compare
(`authorization.py`).
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
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

ADMIN, CLIENTS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
EVERYONE: Final = "allow.everyone.if.no.acl.found"
WAIT_SECONDS: Final = 30.0
ALLOW, DENY = 3, 2
CLUSTER: Final = 4
Question = tuple[str, int, str]
"""A client's address, a row of `ROWS`, and the seed of its words."""


class Connection:
    """A connection from one address of this machine, which speaks by Lockstep's message tables."""

    def __init__(self, port: int, source: str) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=60, source_address=(source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")

    def call(self, request: Request) -> Fields:
        """The response, as a dictionary."""
        self.send([request])
        return self.receive(request)

    def send(self, requests: Sequence[Request]) -> None:
        """Send requests at once; each has a response to `receive`, in this order."""
        frames = [raw_tables.request_frame(api, version, 1, fields) for api, version, fields in requests]
        self._socket.sendall(b"".join(frames))

    def receive(self, request: Request) -> Fields:
        """The next response, to this request. Raises ConnectionError, TimeoutError."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return raw_tables.parse_response(request[0], request[1], self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionError("the broker closed the connection")
        return data

    def close(self) -> None:
        self._stream.close()
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
EVERY_ACL: Final[Request] = (
    "describe_acls",
    3,
    {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
    | {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1},
)


class Broker:
    """One of the two brokers, with its topics, groups and ids; ACLs change by `put`."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._acls: dict[str, Fields] = {}
        """Those in force, with the administrator's, by their text."""
        self._changes: list[Request] = []
        self._asked: list[tuple[Question, Request]] = []
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
        self.put([])

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
        self._until(lambda: self._found() == self._acls.keys())
        self.put([acl(kind, "*", 3, "User:ANONYMOUS", ADMIN, 2, ALLOW) for kind in (2, 3, 5)])
        for group in GROUPS:
            self._served(("offset_fetch", 8, {"groups": [{"group_id": group, "topics": None}]}))
        for name in IDS:
            self._served(("describe_transactions", 0, {"transactional_ids": [name]}))
        self.put([])

    def put(self, acls: Sequence[Fields]) -> None:
        """These ACLs are in force, beside the administrator's."""
        self.begin_put(acls)
        self.end_put()

    def begin_put(self, acls: Sequence[Fields]) -> None:
        """The first half of `put`, without a wait for the broker."""
        before, self._acls = self._acls, {json.dumps(each): each for each in (*ADMIN_ACLS, *acls)}
        removed = [_filter(each) for text, each in before.items() if text not in self._acls]
        added = [each for text, each in self._acls.items() if text not in before]
        self._changes = [("delete_acls", 3, {"filters": removed})] if removed else []
        self._changes += [("create_acls", 3, {"creations": added})] if added else []
        self._admin.send(self._changes)

    def end_put(self) -> None:
        """The second half of `put`."""
        for request in self._changes:
            response = self._admin.receive(request)
            assert not any(_codes(response)), response
            for each in response.get("filter_results", ()):
                assert len(each["matching_acls"]) == 1, response
        self._until(lambda: self._found() == self._acls.keys())

    def ask(self, asked: Sequence[Question]) -> None:
        """Send the requests of a set, each client's at once; `outcomes` says what the broker answers."""
        self._asked = [(each, ROWS[each[1]](Draw(each[2], self.topic_ids))) for each in asked]
        for source, connection in self._clients.items():
            connection.send([request for question, request in self._asked if question[0] == source])

    def outcomes(self) -> list[list[str]]:
        """The outcome of each request that was sent by `ask`. What is not there yet, and what the broker
        closed a connection at, is sent again by itself."""
        found: list[list[str] | None] = []
        closed = set()
        for (source, _, _), request in self._asked:
            lines = None
            if source not in closed:
                try:
                    response = self._clients[source].receive(request)
                    lines = None if _is_loading(response) else outcome(request[0], response, self._names())
                except (ConnectionError, TimeoutError):
                    closed.add(source)
            found.append(lines)
        for source in closed:
            self._reconnect(source)
        return [
            self.outcome(*question) if lines is None else lines
            for lines, (question, _) in zip(found, self._asked, strict=True)
        ]

    def outcome(self, source: str, row: int, seed: str) -> list[str]:
        """What the broker says to one drawn request."""
        request = ROWS[row](Draw(seed, self.topic_ids))
        for attempt in range(50):
            try:
                response = self._clients[source].call(request)
            except (ConnectionError, TimeoutError) as error:
                self._reconnect(source)
                return [f"closed: {error}"]
            if attempt == 0 or not _is_loading(response):
                lines = outcome(request[0], response, self._names())
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

    def _reconnect(self, source: str) -> None:
        self._clients[source].close()
        self._clients[source] = Connection(self.target.port, source)

    def _names(self) -> dict[bytes, str]:
        return {topic_id: name for name, topic_id in self.topic_ids.items()}

    def _found(self) -> set[str]:
        """The texts of the ACLs that the broker has."""
        return {
            json.dumps(acl(*list(resource.values())[:3], *each.values()))
            for resource in self._admin.call(EVERY_ACL)["resources"]
            for each in resource["acls"]
        }

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


def _filter(each: Fields) -> Fields:
    """What DeleteAcls calls one ACL."""
    return {
        "resource_type_filter": each["resource_type"],
        "resource_name_filter": each["resource_name"],
        "pattern_type_filter": each["resource_pattern_type"],
        "principal_filter": each["principal"],
        "host_filter": each["host"],
        "operation": each["operation"],
        "permission_type": each["permission_type"],
    }


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


def brokers(*, everyone: bool, kafka: bool = True, plant: str = "") -> list[Broker]:
    """The brokers, started; the second one is Apache Kafka. Args: plant: a mistake of Lockstep's, one of
    `authorization_sabotage.PLANTS`."""
    settings = {"authorizer.class.name": AUTHORIZER, EVERYONE: "true", "auto.create.topics.enable": "true"}
    command = [sys.executable, "-m", "tests.campaigns.authorization_sabotage", plant] if plant else None
    environment = {"PYTHONPATH": str(evidence.ROOT)}
    made = [Broker(LockstepTarget(settings, command=command, environment=environment))]
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
