"""Over which connections clients may ask for delegation tokens."""

from __future__ import annotations

from lockstep.broker.requests.kafka_principal import ANONYMOUS, KafkaPrincipal
from lockstep.broker.requests.request_context import ClientContext
from lockstep.broker.security.token_request_policy import TokenRequestPolicy
from tests.support.cases import each_case

ALICE = KafkaPrincipal("User", "alice")
BY_TOKEN = KafkaPrincipal("User", "alice", token_authenticated=True)


@each_case(
    ("protocol", "principal", "is_forwarded", "allowed"),
    [
        ("SASL_SSL", ALICE, False, True),
        ("SASL_PLAINTEXT", ALICE, False, True),
        ("SSL", ALICE, False, True),
        ("SSL", ANONYMOUS, False, False),
        ("PLAINTEXT", ANONYMOUS, False, False),
        ("SASL_SSL", BY_TOKEN, False, False),
        ("PLAINTEXT", ALICE, True, True),
        ("PLAINTEXT", BY_TOKEN, True, False),
    ],
)
def test_the_principals_that_may_request_tokens(
    protocol: str, principal: KafkaPrincipal, is_forwarded: bool, allowed: bool
) -> None:
    client = ClientContext("L", "10.1.2.3:999", "10.1.2.4", principal)
    client.is_forwarded = is_forwarded
    assert TokenRequestPolicy(lambda name: protocol).is_allowed(client) == allowed
