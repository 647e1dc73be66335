"""What one client writes every other reads, byte for byte, in every codec."""

from __future__ import annotations

import time

import pytest

from compat_tests.clients.face import CODECS, Client, Message, Stored
from compat_tests.conftest import unique_name
from compat_tests.harness import CLIENTS, World
from compat_tests.raw import raw_connection
from compat_tests.targets import Target

_BINARY = bytes(range(256))
_written: dict[tuple[str, str], tuple[str, list[Message]]] = {}


def _messages(writer: Client, codec: str) -> list[Message]:
    """One batch per codec, with all this writer is able to say."""
    stamp = None if "explicit timestamps" in writer.cannot else int(time.time() * 1000) - 60_000
    found = [
        Message(f"{codec} {n} ".encode() * 30 + _BINARY, key=b"key-%d" % n, timestamp_ms=stamp)
        for n in range(8)
    ]
    found.append(Message(None, key=b"tombstone", timestamp_ms=stamp))
    found.append(Message(b"headers", headers=(("h", b"1"), ("h", b"2")), timestamp_ms=stamp))
    if "null header values" not in writer.cannot:
        found.append(Message(b"null header", headers=(("n", None),), timestamp_ms=stamp))
    return found


def _topic_written_by(world: World, writer_name: str, target: Target) -> tuple[str, list[Message]]:
    """Written once per writer and broker, read by all."""
    key = (writer_name, target.name)
    if key not in _written:
        writer = world.client(writer_name, target.name)
        topic = unique_name()
        with raw_connection(target.bootstrap) as raw:
            raw.create_topic(topic)
        messages: list[Message] = []
        for codec in CODECS:
            fresh = _messages(writer, codec)
            writer.produce(topic, fresh, codec=codec)
            messages += fresh
        _written[key] = (topic, messages)
    return _written[key]


@pytest.mark.case("Written by one, read by another", "written by {writer}")
@pytest.mark.parametrize("writer", list(CLIENTS))
def test_cross(world: World, target: Target, writer: str, client: Client) -> None:
    topic, messages = _topic_written_by(world, writer, target)
    found = client.read(topic, len(messages))
    assert [each.content() for each in found] == [(m.key, m.value, m.headers) for m in messages]
    assert [each.offset for each in found] == list(range(len(messages)))
    stamps = [_stamp(stored, message) for stored, message in zip(found, messages, strict=True)]
    assert all(stamps)


def _stamp(stored: Stored, message: Message) -> bool:
    return message.timestamp_ms in (None, stored.timestamp_ms)
