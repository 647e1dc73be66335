"""A broker with delegation tokens: who may ask for them, what ACLs allow, logins by them, and their end."""

from __future__ import annotations

import base64
from typing import Any

from lockstep.broker.authorization.acl import AclBinding
from lockstep.broker.metadata.metadata_image import acl_command
from lockstep.broker.requests.kafka_principal import KafkaPrincipal
from lockstep.broker.security.sasl_listener import PLAIN_MODULE
from lockstep.broker.security.scram import MECHANISMS
from lockstep.broker.server import Broker
from lockstep.broker.settings.authorizer_settings import STANDARD_AUTHORIZER
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from lockstep.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from lockstep.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from lockstep.protocol.messages.metadata import MetadataRequest
from lockstep.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from lockstep.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from tests.broker.conftest import StartBroker
from tests.broker.fakes import open_connections
from tests.broker.security.test_key_store import inline
from tests.broker.security.test_scram import prove
from tests.broker.test_sasl_listeners import authenticate, do_handshake, log_in, plaintext_port, sasl
from tests.broker.test_tls_listeners import keywords
from tests.broker.wire import Client
from tests.support.cases import each_case
from tests.support.certificates import SelfSignedCa

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
DENIED = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
ALLOW, LITERAL = 3, 3
USER, TOKEN = 7, 6
CREATE_TOKENS, DESCRIBE_TOKENS, DESCRIBE = 13, 14, 8


async def start(start_broker: StartBroker, **more: str) -> Broker:
    texts = {
        **sasl(),
        "listener.name.login.plain.sasl.jaas.config": f"{PLAIN_MODULE} required "
        + " ".join(f'user_{name}="{name}"' for name in ("alice", "bob", "carol", "admin"))
        + ";",
        "delegation.token.secret.key": "a secret",
        **{name.replace("_", "."): text for name, text in more.items()},
    }
    return await start_broker(**keywords({name: text for name, text in texts.items() if text}))


async def client_of(broker: Broker, name: str) -> Client:
    client = await Client.connect(broker.port)
    assert (await log_in(client, f"\0{name}\0{name}".encode())).error_code == 0
    return client


async def create(client: Client, owner: str = "", **fields: Any) -> Any:
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1, **fields)
    if owner:
        request.owner_principal_type, request.owner_principal_name = "User", owner
    return await client.call(request, 3)


async def described(client: Client, *owners: str) -> list[str]:
    named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=each) for each in owners]
    response = await client.call(DescribeDelegationTokenRequest(owners=named or None), 3)
    assert response.error_code == 0
    return [each.token_id for each in response.tokens]


async def log_in_by_token(
    client: Client, token_id: str, token_hmac: bytes, mechanism: str = "SCRAM-SHA-512"
) -> SaslAuthenticateResponse:
    await do_handshake(client, mechanism)
    first = f"n={token_id},r=abc,tokenauth=true"
    server_first = bytes((await authenticate(client, f"n,,{first}".encode())).auth_bytes).decode()
    nonce = server_first.split(",")[0][2:]
    password = base64.b64encode(token_hmac).decode()
    proof = prove(MECHANISMS[mechanism], first, server_first, f"c=biws,r={nonce}", password)
    return await authenticate(client, proof)


@each_case("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_token_from_its_creation_to_its_end(start_broker: StartBroker, mechanism: str) -> None:
    broker = await start(start_broker, **{"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"})
    alice = await client_of(broker, "alice")
    renewers = [CreatableRenewers(principal_type="User", principal_name="bob")]
    made = await create(alice, renewers=renewers)
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (
        0,
        "alice",
        "alice",
    )
    assert len(made.token_id) == 22 and len(made.hmac) == 64
    day = 86_400_000
    issued = made.issue_timestamp_ms
    assert (made.expiry_timestamp_ms - issued, made.max_timestamp_ms - issued) == (day, 7 * day)

    delegate = await Client.connect(broker.port)
    done = await log_in_by_token(delegate, made.token_id, bytes(made.hmac), mechanism)
    assert done.error_code == 0 and 0 < done.session_lifetime_ms <= day
    principals = {each.context.principal for each in open_connections(broker.assembly.connections)}
    assert principals == {KafkaPrincipal("User", "alice")}
    assert (await delegate.call(MetadataRequest(topics=[]), 12)).brokers
    refused = await create(delegate)
    assert (refused.error_code, refused.issue_timestamp_ms) == (NOT_ALLOWED, -1), "no token by a token"

    bob = await client_of(broker, "bob")
    seen = (await bob.call(DescribeDelegationTokenRequest(owners=None), 3)).tokens[0]
    assert (seen.token_id, bytes(seen.hmac), seen.principal_name) == (
        made.token_id,
        bytes(made.hmac),
        "alice",
    )
    assert [each.principal_name for each in seen.renewers] == ["bob"]
    renewed = await bob.call(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=60_000), 2)
    assert renewed.error_code == 0 and renewed.expiry_timestamp_ms < made.expiry_timestamp_ms
    gone = await bob.call(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
    assert gone.error_code == 0
    assert await described(alice) == []
    late = await Client.connect(broker.port)
    failed = await log_in_by_token(late, made.token_id, bytes(made.hmac), mechanism)
    assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    for each in (alice, bob, delegate, late):
        await each.close()
    await broker.stop()


async def test_a_connection_ends_with_its_token(start_broker: StartBroker) -> None:
    broker = await start(start_broker, delegation_token_expiry_time_ms="50000")
    alice = await client_of(broker, "alice")
    made = await create(alice)
    delegate = await Client.connect(broker.port)
    assert (await log_in_by_token(delegate, made.token_id, bytes(made.hmac))).session_lifetime_ms <= 50_000
    shared = broker.assembly.connections
    clock = shared.clock
    shared.clock = lambda: clock() + 51
    delegate.send(MetadataRequest(topics=[]), 12)
    assert await delegate.is_closed()
    await alice.close()


async def test_tokens_survive_a_restart(start_broker: StartBroker) -> None:
    broker = await start(start_broker)
    alice = await client_of(broker, "alice")
    made = await create(alice)
    await alice.close()
    await broker.stop()
    broker = await start(start_broker)
    delegate = await Client.connect(broker.port)
    assert (await log_in_by_token(delegate, made.token_id, bytes(made.hmac))).error_code == 0
    await delegate.close()


async def test_without_a_secret(start_broker: StartBroker) -> None:
    broker = await start(start_broker, delegation_token_secret_key="")
    alice = await client_of(broker, "alice")
    made = await create(alice)
    assert (made.error_code, made.principal_name, made.max_timestamp_ms) == (DISABLED, "alice", 0)
    for request, version in (
        (RenewDelegationTokenRequest(hmac=b"x"), 2),
        (ExpireDelegationTokenRequest(hmac=b"x"), 2),
        (DescribeDelegationTokenRequest(owners=None), 3),
    ):
        assert (await alice.call(request, version)).error_code == DISABLED
    group = CreatableRenewers(principal_type="Group", principal_name="g")
    rejected = await create(alice, renewers=[group])
    invalid = ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (rejected.error_code, rejected.max_timestamp_ms) == (invalid, -1), "renewers are checked before"
    await alice.close()
    client = await Client.connect(plaintext_port(broker))
    assert (await create(client)).error_code == NOT_ALLOWED, "the connection is checked first"
    await client.close()


async def test_one_way_tls_is_no_authentication(start_broker: StartBroker) -> None:
    authority = SelfSignedCa()
    texts = {
        "listeners": "SSL://127.0.0.1:0",
        "delegation.token.secret.key": "a secret",
        **inline(authority.issue("broker")),
    }
    broker = await start_broker(**keywords(texts))
    listener = next(iter(broker._ports)).name
    context = broker.assembly.connections.client_of(listener)
    handler = next(each for each in broker.assembly.connections.router.handlers if each.api_key == 38)
    assert handler.is_local(context, CreateDelegationTokenRequest())
    context.principal = KafkaPrincipal("User", "CN=alice")
    assert not handler.is_local(context, CreateDelegationTokenRequest())


async def test_what_acls_allow(start_broker: StartBroker) -> None:
    broker = await start(
        start_broker, **{"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
    )
    alice, bob, carol, admin = [await client_of(broker, name) for name in ("alice", "bob", "carol", "admin")]
    denied = await create(bob, "alice")
    assert (denied.error_code, denied.principal_name, denied.max_timestamp_ms) == (DENIED, "alice", -1)
    group = CreatableRenewers(principal_type="Group", principal_name="g")
    assert (await create(bob, "alice", renewers=[group])).error_code == DENIED, "the owner is checked first"
    of_alice = await create(admin, "alice")
    assert (of_alice.error_code, of_alice.token_requester_principal_name) == (0, "admin")
    of_carol = await create(carol)
    ids = {"alice": of_alice.token_id, "carol": of_carol.token_id}
    assert await described(alice) == [ids["alice"]] and await described(carol) == [ids["carol"]]
    assert await described(bob) == []
    assert await described(admin) == [ids["alice"], ids["carol"]]
    assert await described(admin, "carol", "nobody") == [ids["carol"]]
    renewal = RenewDelegationTokenRequest(hmac=of_alice.hmac, renew_period_ms=-1)
    mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert (await admin.call(renewal, 2)).error_code == mismatch, "a super user, and its requester"

    for kind, name, operation in (
        (USER, "User:alice", CREATE_TOKENS),
        (USER, "User:alice", DESCRIBE_TOKENS),
        (TOKEN, ids["carol"], DESCRIBE),
    ):
        acl = AclBinding.of((kind, name, LITERAL, "User:bob", "*", operation, ALLOW))
        await broker.assembly.topics.record_configs([acl_command(acl)])
    second = await create(bob, "alice")
    assert second.error_code == 0
    assert await described(bob) == [ids["alice"], ids["carol"], second.token_id]
    assert (await create(bob, "carol")).error_code == DENIED
    for each in (alice, bob, carol, admin):
        await each.close()
