"""The kinds of the churn campaign that need logins, TLS or an authorizer.

Owns: the broker's further settings, and each kind. Does not: count (`churn.py`).
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from lockstep.broker.security.sasl_listener import PLAIN_MODULE
from lockstep.broker.server import Broker
from lockstep.broker.settings.authorizer_settings import STANDARD_AUTHORIZER
from lockstep.protocol.acl_codes import AclOperation, AclPermissionType, AclResourceType, PatternType
from lockstep.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from lockstep.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from lockstep.protocol.messages.api_versions import ApiVersionsRequest
from lockstep.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from lockstep.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from lockstep.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from lockstep.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from lockstep.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from lockstep.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire import Client
from tests.support.certificates import SelfSignedCa

_AUTHORITY: Final = SelfSignedCa()
_ISSUED: Final = _AUTHORITY.issue("broker")
_CONTEXT: Final = ssl.create_default_context(cadata=_AUTHORITY.pem())
SETTINGS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0,ENCRYPTED://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,ENCRYPTED:SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.login.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="secret";',
    "connection.failed.authentication.delay.ms": "1",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": _ISSUED.key_pem(),
    "ssl.keystore.certificate.chain": _ISSUED.chain_pem(),
    "delegation.token.secret.key": "a secret",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:alice",
}


def _port(broker: Broker, listener: str) -> int:
    return next(port for each, port in broker._ports.items() if each.name == listener)


async def _log_in(broker: Broker, mechanism: str, token: bytes) -> tuple[Client, int]:
    """A new connection after its login's last response; and that one's error."""
    client = await Client.connect(_port(broker, "LOGIN"))
    assert (await client.call(SaslHandshakeRequest(mechanism=mechanism), 1)).error_code == 0
    answer = await client.call(SaslAuthenticateRequest(auth_bytes=token), 2)
    return client, answer.error_code


async def login(broker: Broker, client: Client, name: str) -> None:
    """A client logs in, asks, and goes."""
    logged_in, error = await _log_in(broker, "PLAIN", b"\0alice\0secret")
    assert error == 0
    await logged_in.call(ApiVersionsRequest(), 0)
    await logged_in.close()


async def failed_login(broker: Broker, client: Client, name: str) -> None:
    """A user that nobody knows, a wrong password, no message of SCRAM; the broker closes the connections."""
    for mechanism, token in (
        ("PLAIN", f"\0{name}\0secret"),
        ("PLAIN", f"\0alice\0{name}"),
        ("SCRAM-SHA-512", f"no message of SCRAM by {name}"),
    ):
        failed, error = await _log_in(broker, mechanism, token.encode())
        assert error != 0
        assert await failed.reader.read() == b""
        await failed.close()


async def unfinished_login(broker: Broker, client: Client, name: str) -> None:
    """A client goes in the middle of a login by SCRAM."""
    half, error = await _log_in(broker, "SCRAM-SHA-512", f"n,,n={name},r=nonce".encode())
    assert error == 0
    await half.close()


async def tls_connection(broker: Broker, client: Client, name: str) -> None:
    """A client ends its handshake, asks, and goes."""
    port = _port(broker, "ENCRYPTED")
    encrypted = Client(*await asyncio.open_connection("127.0.0.1", port, ssl=_CONTEXT))
    await encrypted.call(ApiVersionsRequest(), 0)
    await encrypted.close()


async def failed_handshake(broker: Broker, client: Client, name: str) -> None:
    """A client without TLS, and one that trusts another CA; the broker closes the first."""
    port = _port(broker, "ENCRYPTED")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))
    await reader.read()
    writer.close()
    try:
        await asyncio.open_connection("127.0.0.1", port, ssl=ssl.create_default_context())
    except ssl.SSLCertVerificationError:
        return
    raise AssertionError("a client trusts a CA that it does not know")


async def delegation_token(broker: Broker, client: Client, name: str) -> None:
    """A token is made and expired."""
    owner, error = await _log_in(broker, "PLAIN", b"\0alice\0secret")
    assert error == 0
    made = await owner.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    assert made.error_code == 0
    gone = await owner.call(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
    assert gone.error_code == 0
    await owner.close()


async def client_quota(broker: Broker, client: Client, name: str) -> None:
    """A quota of a new user is set and removed."""
    for remove in (False, True):
        entry = EntryData(
            entity=[EntityData(entity_type="user", entity_name=name)],
            ops=[OpData(key="producer_byte_rate", value=1e6, remove=remove)],
        )
        (done,) = (await client.call(AlterClientQuotasRequest(entries=[entry]), 1)).entries
        assert done.error_code == 0


async def scram_user(broker: Broker, client: Client, name: str) -> None:
    """A user gets a password and loses it."""
    upsertion = ScramCredentialUpsertion(
        name=name, mechanism=2, iterations=4096, salt=b"saltsalt", salted_password=b"p" * 64
    )
    for request in (
        AlterUserScramCredentialsRequest(upsertions=[upsertion]),
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name=name, mechanism=2)]),
    ):
        (done,) = (await client.call(request, 0)).results
        assert done.error_code == 0


async def acl(broker: Broker, client: Client, name: str) -> None:
    """An ACL of a new user and a new topic is made and removed."""
    kind, pattern = AclResourceType.TOPIC, PatternType.LITERAL
    operation, permission = AclOperation.READ, AclPermissionType.ALLOW
    principal = f"User:{name}"
    creation = AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=pattern, principal=principal, host="*",
        operation=operation, permission_type=permission,
    )  # fmt: skip
    (made,) = (await client.call(CreateAclsRequest(creations=[creation]), 2)).results
    assert made.error_code == 0
    matched = DeleteAclsFilter(
        resource_type_filter=kind, resource_name_filter=name, pattern_type_filter=pattern,
        principal_filter=principal, host_filter="*", operation=operation, permission_type=permission,
    )  # fmt: skip
    (gone,) = (await client.call(DeleteAclsRequest(filters=[matched]), 2)).filter_results
    assert (gone.error_code, len(gone.matching_acls)) == (0, 1)


KINDS: Final[dict[str, Callable[[Broker, Client, str], Awaitable[None]]]] = {
    "logins": login,
    "failed logins": failed_login,
    "unfinished logins": unfinished_login,
    "TLS connections": tls_connection,
    "failed handshakes": failed_handshake,
    "delegation tokens": delegation_token,
    "client quotas": client_quota,
    "SCRAM users": scram_user,
    "ACLs": acl,
}
