"""A broker whose clients log in by OAUTHBEARER: good and bad tokens on the wire, and their end."""

from __future__ import annotations

import json
import time
from pathlib import Path

from lockstep.broker.requests.kafka_principal import KafkaPrincipal
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.metadata import MetadataRequest
from tests.broker.conftest import StartBroker
from tests.broker.test_sasl_listeners import authenticate, do_handshake, principal, sasl
from tests.broker.test_tls_listeners import keywords
from tests.broker.wire import Client
from tests.support.tokens import AUDIENCE, EC, ISSUER, RSA, claims, first_message, jwks, signed

REJECTION = '{"status":"invalid_token"}'


async def start(start_broker: StartBroker, keys: Path) -> Broker:
    texts = {
        **sasl(),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    del texts["listener.name.login.plain.sasl.jaas.config"]
    return await start_broker(**keywords(texts))


def now() -> int:
    return int(time.time())


async def test_a_token_logs_in_and_ends_the_connection(start_broker: StartBroker, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(jwks(RSA)))
    broker = await start(start_broker, keys)
    client = await Client.connect(broker.port)
    await do_handshake(client, "OAUTHBEARER")
    done = await authenticate(client, first_message(signed(claims(now()))))
    assert (done.error_code, done.auth_bytes) == (0, b"")
    assert 50_000 < done.session_lifetime_ms <= 60_000, "what is left of the token, without a setting"
    assert principal(broker) == KafkaPrincipal("User", "alice")
    assert (await client.call(MetadataRequest(topics=[]), 12)).brokers
    shared = broker.assembly.connections
    clock = shared.clock
    shared.clock = lambda: clock() + 61
    client.send(MetadataRequest(topics=[]), 12)
    assert await client.is_closed()


async def test_a_bad_token_fails_after_the_clients_confirmation(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(jwks(RSA)))
    broker = await start(start_broker, keys)
    client = await Client.connect(broker.port)
    await do_handshake(client, "OAUTHBEARER")
    rejected = await authenticate(client, first_message(signed(claims(now(), aud="another"))))
    assert (rejected.error_code, bytes(rejected.auth_bytes)) == (0, REJECTION.encode())
    failed = await authenticate(client, b"\x01")
    assert (failed.error_code, failed.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, REJECTION)
    assert await client.is_closed()
    assert broker.assembly.connections.failed_authentications == 1


async def test_new_keys_are_taken_over(start_broker: StartBroker, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(jwks(RSA)))
    broker = await start(start_broker, keys)
    keys.write_text(json.dumps(jwks(EC)))
    for each in broker._securities.token_keys:
        each.refresh()
    client = await Client.connect(broker.port)
    await do_handshake(client, "OAUTHBEARER")
    done = await authenticate(client, first_message(signed(claims(now()), EC, "ES256")))
    assert done.error_code == 0 and done.session_lifetime_ms
    await client.close()
