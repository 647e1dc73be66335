"""A Python adapter as a line driver, for a version of a package that cannot be imported beside another one.

`python -m compat_tests.python_driver DIRECTORY MODULE:CLASS` answers driven.py's questions through that
adapter, with the packages in DIRECTORY before all others.
Owns: DIRECTORY (`.cache/python-REQUIREMENTS-DIGEST`), which pip fills once from a file of hashes; how
questions become calls. Invariant: the directory appears whole or not at all.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compat_tests.clients.face import Client, Member, Message, Refused, Stored, Tail, Transactional
from compat_tests.clients.security import Security
from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.line_driver import LineDriver

_ROOT = Path(__file__).resolve().parent.parent


def pinned(requirements: str) -> Path:
    """The path of a file of hashes in `requirements/`."""
    return _ROOT / "requirements" / requirements


@functools.cache
def installed(requirements: str) -> Path:
    """The directory with what `requirements/<name>.txt` pins; pip runs only when it is not there."""
    wanted = pinned(requirements)
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
    target = _ROOT / ".cache" / f"python-{wanted.stem}-{digest[:16]}"
    if not target.is_dir():
        target.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as fresh:
            made = Path(fresh) / "packages"
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
            command += ["--no-deps", "--require-hashes", "--requirement", str(wanted), "--target", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ToolchainMissing(f"pip could not install {wanted.name}:\n{done.stderr[-2000:]}")
            try:
                made.rename(target)
            except OSError:
                if not target.is_dir():  # else another process was as quick
                    raise
    return target


def python_driver(requirements: str, adapter: str) -> LineDriver:
    """A process that serves `adapter` ("module:class") with those packages. ToolchainMissing."""
    module = "compat_tests.python_driver"
    return LineDriver([sys.executable, "-m", module, str(installed(requirements)), adapter], _ROOT)


class _Served:
    """One adapter per broker, made when it is first asked."""

    def __init__(self, kind: type[Client]) -> None:
        self._kind = kind
        self._clients: dict[tuple[str, Security], Client] = {}
        self._open: dict[int, Any] = {}
        """Members and tails, by the number the asking side knows them by."""

    def answer(self, ask: Mapping[str, Any]) -> Any:
        settings = ask["settings"]
        where = bootstrap, security = settings["bootstrap.servers"], Security.from_words(settings)
        if where not in self._clients:
            self._clients[where] = self._kind(bootstrap, security=security)
        given = {key: value for key, value in ask.items() if key not in ("do", "settings")}
        return getattr(self, f"do_{ask['do']}")(self._clients[where], settings, **given)

    def close(self) -> None:
        for each in [*self._open.values(), *self._clients.values()]:
            each.close()

    def _numbered(self, opened: Member | Tail | Transactional) -> int:
        number = len(self._open) + 1
        while number in self._open:
            number += 1
        self._open[number] = opened
        return number

    def do_first_contact(self, client: Client, _: Mapping[str, str]) -> str:
        return client.first_contact()

    # -- records ----------------------------------------------------------------------------------------

    def do_produce(
        self, client: Client, settings: Mapping[str, str], topic: str, messages: list[Any]
    ) -> list[int]:
        return client.produce(
            topic,
            [_message(each) for each in messages],
            codec=settings["compression.type"],
            acks=settings["acks"],
            idempotent=settings["enable.idempotence"] == "true",
            batch_bytes=_number(settings.get("batch.size")),
            max_request_bytes=_number(settings.get("max.request.size")),
        )

    def do_send_each(
        self, client: Client, settings: Mapping[str, str], topic: str, rounds: list[Any]
    ) -> list[Any]:
        asked = [[_message(each) for each in messages] for messages in rounds]
        told = client.send_each(topic, asked, idempotent=settings["enable.idempotence"] == "true")
        return [[asdict(each) for each in found] for found in told]

    def do_read(
        self, client: Client, settings: Mapping[str, str], topic: str, count: int, **how: Any
    ) -> list[Any]:
        how["partition_fetch_bytes"] = _number(settings.get("max.partition.fetch.bytes"))
        how["isolation"] = settings.get("isolation.level")
        return [_wire(each) for each in client.read(topic, count, **how)]

    def do_tail_open(self, client: Client, settings: Mapping[str, str], topic: str, partition: int) -> int:
        return self._numbered(client.tail(topic, partition, max_wait_ms=int(settings["fetch.max.wait.ms"])))

    def do_tail_next(self, _: Client, __: Mapping[str, str], tail: int, timeout_s: float) -> Any:
        found = self._open[tail].next(timeout_s)
        return None if found is None else _wire(found)

    def do_tail_close(self, _: Client, __: Mapping[str, str], tail: int) -> None:
        self._open.pop(tail).close()

    def do_offsets(self, client: Client, _: Mapping[str, str], **where: Any) -> Any:
        return client.offsets(**where)

    def do_offset_for_time(self, client: Client, _: Mapping[str, str], **where: Any) -> Any:
        return client.offset_for_time(**where)

    # -- groups -----------------------------------------------------------------------------------------

    def do_join(self, client: Client, settings: Mapping[str, str], topics: list[str]) -> int:
        member = client.join(
            topics,
            settings["group.id"],
            start=settings["auto.offset.reset"],
            auto_commit=settings["enable.auto.commit"] == "true",
            assignor=settings.get("partition.assignment.strategy"),
            instance_id=settings.get("group.instance.id"),
            session_timeout_ms=int(settings["session.timeout.ms"]),
        )
        return self._numbered(member)

    def do_poll(self, _: Client, __: Mapping[str, str], member: int, count: int, timeout_s: float) -> Any:
        return [_wire(each) for each in self._open[member].poll(count, timeout_s)]

    def do_assignment(self, _: Client, __: Mapping[str, str], member: int) -> Any:
        return sorted(self._open[member].assignment())

    def do_commit(self, _: Client, __: Mapping[str, str], member: int) -> None:
        self._open[member].commit()

    def do_leave(self, _: Client, __: Mapping[str, str], member: int) -> None:
        self._open.pop(member).close()

    def do_committed(self, client: Client, _: Mapping[str, str], **where: Any) -> Any:
        return client.committed(**where)

    def do_groups(self, client: Client, _: Mapping[str, str]) -> Any:
        return sorted(client.groups())

    def do_describe_group(self, client: Client, _: Mapping[str, str], group: str) -> Any:
        found = client.describe_group(group)
        members = [
            {
                "member_id": each.member_id,
                "client_id": each.client_id,
                "host": each.host,
                "assignment": sorted(each.assignment),
            }
            for each in found.members
        ]
        kind, protocol = found.protocol_type, found.protocol
        return {"state": found.state, "protocol_type": kind, "protocol": protocol, "members": members}

    def do_delete_group(self, client: Client, _: Mapping[str, str], group: str) -> None:
        client.delete_group(group)

    def do_set_offset(self, client: Client, _: Mapping[str, str], **where: Any) -> None:
        client.set_offset(**where)

    def do_delete_offset(self, client: Client, _: Mapping[str, str], **where: Any) -> None:
        client.delete_offset(**where)

    # -- transactions -----------------------------------------------------------------------------------

    def do_tx_open(self, client: Client, settings: Mapping[str, str], topics: list[str]) -> int:
        opened = client.transactional(
            settings["transactional.id"],
            timeout_ms=int(settings["transaction.timeout.ms"]),
            source=(topics[0], settings["group.id"]) if topics else None,
        )
        return self._numbered(opened)

    def do_tx_begin(self, _: Client, __: Mapping[str, str], producer: int) -> None:
        self._open[producer].begin()

    def do_tx_send(
        self, _: Client, __: Mapping[str, str], producer: int, topic: str, messages: list[Any]
    ) -> Any:
        return self._open[producer].send(topic, [_message(each) for each in messages])

    def do_tx_poll(self, client: Client, settings: Mapping[str, str], producer: int, **how: Any) -> Any:
        return self.do_poll(client, settings, producer, **how)

    def do_tx_positions(self, _: Client, __: Mapping[str, str], producer: int) -> None:
        self._open[producer].send_positions()

    def do_tx_commit(self, _: Client, __: Mapping[str, str], producer: int) -> None:
        self._open[producer].commit()

    def do_tx_abort(self, _: Client, __: Mapping[str, str], producer: int) -> None:
        self._open[producer].abort()

    def do_tx_close(self, _: Client, __: Mapping[str, str], producer: int) -> None:
        self._open.pop(producer).close()

    # -- administration ---------------------------------------------------------------------------------

    def do_create_topic(self, client: Client, _: Mapping[str, str], **wanted: Any) -> None:
        client.create_topic(**wanted)

    def do_delete_topic(self, client: Client, _: Mapping[str, str], topic: str) -> None:
        client.delete_topic(topic)

    def do_topics(self, client: Client, _: Mapping[str, str]) -> Any:
        return sorted(client.topics())

    def do_describe_topic(self, client: Client, _: Mapping[str, str], topic: str) -> Any:
        topic_id = None if "topic id" in client.cannot else client.topic_id(topic)
        return {"partitions": client.partition_count(topic), "topic_id": topic_id}

    def do_add_partitions(self, client: Client, _: Mapping[str, str], topic: str, total: int) -> None:
        client.add_partitions(topic, total)

    def do_delete_records(self, client: Client, _: Mapping[str, str], **where: Any) -> int:
        return client.delete_records(**where)

    def do_topic_config(self, client: Client, _: Mapping[str, str], topic: str) -> Any:
        return client.topic_config(topic)

    def do_set_config(self, client: Client, _: Mapping[str, str], **wanted: Any) -> None:
        client.set_config(**wanted)

    def do_cluster(self, client: Client, _: Mapping[str, str]) -> Any:
        found = client.cluster()
        brokers = [[each.node_id, each.host, each.port] for each in found.brokers]
        return {
            "cluster_id": found.cluster_id,
            "controller_id": found.controller_id,
            "brokers": brokers,
        }


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _message(each: Mapping[str, Any]) -> Message:
    headers = tuple((name, _bytes(value)) for name, value in each["headers"])
    return Message(
        _bytes(each["value"]), _bytes(each["key"]), headers, each["timestamp_ms"], each["partition"]
    )


def _wire(each: Stored) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "offset": each.offset,
        "key": _text(each.key),
        "value": _text(each.value),
        "headers": [[name, _text(value)] for name, value in each.headers],
        "timestamp_ms": each.timestamp_ms,
        "timestamp_type": each.timestamp_type,
    }


def _answers(served: _Served, lines: Iterator[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        try:
            yield {"ok": served.answer(json.loads(line))}
        except Refused as refused:
            yield {"error": {"code": refused.code, "class": "Refused", "text": refused.text}}
        except Exception as error:  # the asking side must hear of whatever it was
            yield {"error": {"code": -1, "class": type(error).__name__, "text": str(error)}}


def main(directory: str, adapter: str) -> None:
    sys.path.insert(0, directory)
    module, _, name = adapter.partition(":")
    served = _Served(getattr(importlib.import_module(module), name))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything else prints goes to the log
    for answer in _answers(served, iter(sys.stdin)):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    served.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
