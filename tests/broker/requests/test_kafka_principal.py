"""broker/requests/kafka_principal.py: the text of a principal, both ways."""

from __future__ import annotations

import pytest

from lockstep.broker.requests.kafka_principal import ANONYMOUS, KafkaPrincipal
from lockstep.broker.requests.request_context import ClientContext
from tests.support.cases import each_case


@each_case(
    "text, principal",
    [
        ("User:alice", KafkaPrincipal("User", "alice")),
        ("User:CN=a:b,O=c", KafkaPrincipal("User", "CN=a:b,O=c")),
        ("Role:", KafkaPrincipal("Role", "")),
    ],
)
def test_a_text_and_back(text: str, principal: KafkaPrincipal) -> None:
    assert KafkaPrincipal.parse(text) == principal
    assert str(principal) == text


@each_case("text", ["", "alice", ":alice"])
def test_a_text_without_a_type(text: str) -> None:
    with pytest.raises(ValueError, match="principalType:principalName"):
        KafkaPrincipal.parse(text)


def test_a_connection_without_authentication() -> None:
    client = ClientContext("PLAINTEXT", "::1:4711", "::1")
    assert client.principal is ANONYMOUS
    assert str(client.principal) == "User:ANONYMOUS"
    assert client.host == "::1"
