"""Records over TLS with a login, and over TLS with a client certificate: each client, in its own words."""

from __future__ import annotations

import pytest

from compat_tests.clients.face import Client, Message
from compat_tests.conftest import NewTopic
from compat_tests.secured.conftest import MTLS


@pytest.mark.case("Security", "{login}: what is written is read back")
@pytest.mark.parametrize("login", ["SCRAM-SHA-512", MTLS])
def test_records(client: Client, new_topic: NewTopic, login: str) -> None:
    topic = new_topic()
    messages = [Message(b"value %d" % n * 100, key=b"k%d" % n) for n in range(30)]
    assert client.produce(topic, messages) in ([], list(range(30)))
    assert [each.content() for each in client.read(topic, 30)] == [(m.key, m.value, ()) for m in messages]
    assert topic in client.topics()
