"""Delegation tokens: their making, renewal and end, with Kafka's errors in Kafka's order."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence

import pytest

from lockstep.broker.metadata.token_commands import apply_token_command, token_command
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.kafka_principal import KafkaPrincipal
from lockstep.broker.security import delegation_tokens
from lockstep.broker.security.delegation_tokens import (
    MAX_TIME_MS,
    DelegationToken,
    DelegationTokenCache,
    DelegationTokenRules,
    DelegationTokens,
    TokenChange,
)
from lockstep.broker.security.sasl_exchange import Authenticated, AuthenticationFailed
from lockstep.broker.security.scram import SHA_256, SHA_512, ScramExchange, ScramMechanism
from lockstep.protocol.errors import ErrorCode
from tests.broker.security.test_scram import prove
from tests.support.cases import each_case

NOW = 1_000_000
DAY = 86_400_000
ALICE, BOB, CAROL = (KafkaPrincipal("User", name) for name in ("alice", "bob", "carol"))
DISABLED, MISSING = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, ErrorCode.DELEGATION_TOKEN_NOT_FOUND
MISMATCH, EXPIRED = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, ErrorCode.DELEGATION_TOKEN_EXPIRED


class Cluster:
    """What a controller stores, and the clock."""

    def __init__(self, rules: DelegationTokenRules | None = None) -> None:
        self.stored = DelegationTokenCache()
        self.records: list[int] = []
        self.now_ms = NOW
        ids = iter(range(1_000_000))
        self.tokens = DelegationTokens(
            rules or DelegationTokenRules("secret"),
            self.stored,
            self.record,
            lambda: self.now_ms,
            lambda: f"id-{next(ids)}",
        )

    async def record(self, changes: Sequence[TokenChange]) -> None:
        self.records.append(len(changes))
        for each in changes:
            apply_token_command(self.stored, token_command(each))

    async def create(self, *renewers: KafkaPrincipal, lifetime_ms: int = -1) -> bytes:
        token = await self.tokens.create(ALICE, ALICE, renewers, lifetime_ms)
        return self.tokens.hmac_of(token)

    @property
    def only(self) -> DelegationToken:
        (token,) = self.stored.values()
        return token


async def fails(error: ErrorCode, call: object) -> None:
    with pytest.raises(RequestError) as failed:
        await call  # type: ignore[misc]
    assert failed.value.error == error


@each_case(
    ("lifetime_ms", "max_ms", "expiry_ms"),
    [
        (-1, NOW + 7 * DAY, NOW + DAY),
        (0, NOW + 7 * DAY, NOW + DAY),
        (1_000, NOW + 1_000, NOW + 1_000),
        (2 * DAY, NOW + 2 * DAY, NOW + DAY),
        (8 * DAY, NOW + 7 * DAY, NOW + DAY),
        (MAX_TIME_MS, NOW + 7 * DAY, NOW + DAY),
    ],
)
async def test_the_times_of_a_new_token(lifetime_ms: int, max_ms: int, expiry_ms: int) -> None:
    cluster = Cluster()
    token = await cluster.tokens.create(BOB, ALICE, [CAROL], lifetime_ms)
    assert token == DelegationToken("id-0", BOB, ALICE, (CAROL,), NOW, max_ms, expiry_ms)
    assert cluster.stored == {"id-0": token}


async def test_times_do_not_overflow() -> None:
    cluster = Cluster(DelegationTokenRules("secret", MAX_TIME_MS, MAX_TIME_MS))
    token = await cluster.tokens.create(ALICE, ALICE, (), -1)
    assert (token.max_ms, token.expiry_ms) == (MAX_TIME_MS, MAX_TIME_MS)


async def test_the_hmac_is_kafkas() -> None:
    """HmacSHA512 over the id with the secret as key; computed with the JDK."""
    token = DelegationToken("some-id", ALICE, ALICE, (), 0, 0, 0)
    known = "L6wxhxWTV6bh27ANZadJxP/V7bCGNslaKvpClyiaZDsAhJPbatHYpCITwu/z4Hej48ZgcWlWEWRutazWA/vYuQ=="
    assert base64.b64encode(Cluster().tokens.hmac_of(token)).decode() == known


async def test_selected_tokens() -> None:
    cluster = Cluster()
    await cluster.create()
    await cluster.tokens.create(BOB, BOB, [], -1)
    assert [each.token_id for each in cluster.tokens.select(lambda token: token.owner == BOB)] == ["id-1"]


async def test_without_a_secret_there_are_no_tokens() -> None:
    cluster = Cluster(DelegationTokenRules())
    tokens = cluster.tokens
    await fails(DISABLED, tokens.create(ALICE, ALICE, [], -1))
    await fails(DISABLED, tokens.renew(ALICE, b"", -1))
    await fails(DISABLED, tokens.expire(ALICE, b"", -1))
    with pytest.raises(RequestError):
        tokens.select(lambda token: True)
    cluster.stored.put(DelegationToken("id", ALICE, ALICE, (), NOW, NOW + DAY, NOW + DAY))
    assert tokens.login_of(SHA_512, "id") is None


async def test_limits() -> None:
    cluster = Cluster()
    many = [BOB] * (delegation_tokens.MAX_PRINCIPALS - 1)
    await fails(ErrorCode.INVALID_REQUEST, cluster.create(*many))
    await fails(ErrorCode.INVALID_REQUEST, cluster.create(KafkaPrincipal("User", "b" * 1_000)))
    names = [KafkaPrincipal("User", str(each)) for each in range(100)]
    for each in range(delegation_tokens.MAX_TOKENS):
        cluster.stored.put(DelegationToken(str(each), names[each % 100], names[each % 100], (), 0, 0, 0))
    await fails(ErrorCode.POLICY_VIOLATION, cluster.create())
    assert len(cluster.stored) == delegation_tokens.MAX_TOKENS


async def test_the_names_of_renewers_have_a_limit_in_bytes() -> None:
    cluster = Cluster()
    name = "é" * ((delegation_tokens.MAX_RENEWERS_BYTES // 4 - len("User:")) // 2)
    renewers = [KafkaPrincipal("User", name + "x" * (each % 2 + 1)) for each in range(3)]
    token_hmac = await cluster.create(*renewers, KafkaPrincipal("User", name))
    longer = KafkaPrincipal("User", name + "é" * 2)
    await fails(ErrorCode.INVALID_REQUEST, cluster.create(*renewers, longer))
    stored = DelegationToken("old", ALICE, ALICE, (*renewers, longer) * 9, NOW, NOW + DAY, NOW + DAY)
    cluster.stored.put(stored)
    renewed = await cluster.tokens.renew(longer, cluster.tokens.hmac_of(stored), 5)
    assert renewed == NOW + 5, "a token that an earlier version stored stays valid"
    assert await cluster.tokens.renew(ALICE, token_hmac, 5) == NOW + 5


async def test_one_principal_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "MAX_TOKENS_OF_PRINCIPAL", 2)
    cluster = Cluster()
    token_hmac = await cluster.create()
    await cluster.tokens.renew(ALICE, token_hmac, 5_000)
    await cluster.tokens.create(BOB, ALICE, (), -1)
    await fails(ErrorCode.POLICY_VIOLATION, cluster.create())
    await fails(ErrorCode.POLICY_VIOLATION, cluster.tokens.create(ALICE, CAROL, (), -1))
    await fails(ErrorCode.POLICY_VIOLATION, cluster.tokens.create(CAROL, ALICE, (), -1))
    await cluster.tokens.create(BOB, CAROL, (), -1)
    await fails(ErrorCode.POLICY_VIOLATION, cluster.tokens.create(BOB, BOB, (), -1))
    await cluster.tokens.expire(ALICE, token_hmac, -1)
    await cluster.create()
    await fails(ErrorCode.POLICY_VIOLATION, cluster.create())


async def test_tokens_that_are_being_stored_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "MAX_TOKENS_OF_PRINCIPAL", 2)
    cluster = Cluster()
    stored = asyncio.Event()

    async def later(changes: Sequence[TokenChange]) -> None:
        await stored.wait()
        await cluster.record(changes)

    cluster.tokens._record = later
    tasks = [asyncio.create_task(cluster.create()) for _ in range(3)]
    await asyncio.sleep(0)
    stored.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(each, RequestError) for each in results] == [False, False, True]
    monkeypatch.setattr(delegation_tokens, "MAX_TOKENS_OF_PRINCIPAL", 3)
    await cluster.create()


async def test_an_unknown_hmac_costs_no_hmac_of_the_stored_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    token_hmac = await cluster.create()
    await cluster.create()
    computed: list[str] = []

    def compute(secret: bytes, token_id: str) -> bytes:
        computed.append(token_id)
        return b""

    monkeypatch.setattr(delegation_tokens, "token_hmac", compute)
    for _ in range(3):
        await fails(MISSING, cluster.tokens.renew(ALICE, b"unknown", -1))
    await cluster.tokens.renew(ALICE, token_hmac, -1)
    assert computed == []


async def test_stored_tokens_are_found_by_the_secret_in_use() -> None:
    cluster = Cluster()
    token_hmac = await cluster.create()
    assert cluster.stored.find(token_hmac) == cluster.only
    cluster.stored.use_secret(b"another")
    assert cluster.stored.find(token_hmac) is None
    cluster.stored.use_secret(b"secret")
    assert cluster.stored.find(token_hmac) == cluster.only
    cluster.stored.remove("unknown")
    cluster.stored.clear()
    assert cluster.stored.find(token_hmac) is None and cluster.stored.count_of(ALICE) == 0
    cluster.stored.use_secret(b"")
    assert cluster.stored.find(token_hmac) is None


@each_case("principal", [ALICE, BOB])
async def test_owner_and_renewers_renew(principal: KafkaPrincipal) -> None:
    cluster = Cluster()
    token_hmac = await cluster.create(BOB, lifetime_ms=2 * DAY)
    cluster.now_ms += 1_000
    assert await cluster.tokens.renew(principal, token_hmac, 5_000) == NOW + 6_000
    assert await cluster.tokens.renew(principal, token_hmac, 2 * DAY) == NOW + 1_000 + DAY
    cluster.now_ms += DAY
    assert await cluster.tokens.renew(principal, token_hmac, -1) == NOW + 2 * DAY, (
        "not above its longest life"
    )
    assert cluster.only.expiry_ms == NOW + 2 * DAY


async def test_the_errors_of_a_renewal_in_their_order() -> None:
    cluster = Cluster()
    token_hmac = await cluster.create()
    await fails(MISSING, cluster.tokens.renew(ALICE, b"other", -1))
    await fails(MISMATCH, cluster.tokens.renew(BOB, token_hmac, -1))
    cluster.now_ms = cluster.only.expiry_ms
    await cluster.tokens.renew(ALICE, token_hmac, 1)
    cluster.now_ms = cluster.only.expiry_ms + 1
    await fails(EXPIRED, cluster.tokens.renew(BOB, token_hmac, -1))
    assert cluster.records == [1, 1]


async def test_the_errors_of_an_end_in_their_order() -> None:
    cluster = Cluster()
    token_hmac = await cluster.create(BOB)
    await fails(MISSING, cluster.tokens.expire(ALICE, b"other", -1))
    assert await cluster.tokens.expire(BOB, token_hmac, 5_000) == NOW + 5_000 == cluster.only.expiry_ms
    cluster.now_ms += 5_001
    await fails(MISMATCH, cluster.tokens.expire(CAROL, token_hmac, -1))
    await fails(EXPIRED, cluster.tokens.expire(ALICE, token_hmac, 0))
    assert await cluster.tokens.expire(ALICE, token_hmac, -1) == cluster.now_ms
    assert cluster.stored == {}
    await fails(MISSING, cluster.tokens.expire(ALICE, token_hmac, -1))


async def test_a_requester_that_is_not_the_owner_sees_a_token_and_does_not_renew_it() -> None:
    cluster = Cluster()
    token = await cluster.tokens.create(ALICE, BOB, [CAROL], -1)
    await fails(MISMATCH, cluster.tokens.renew(BOB, cluster.tokens.hmac_of(token), -1))
    seen = [token.is_visible_to(each) for each in (ALICE, BOB, CAROL, KafkaPrincipal("User", "dan"))]
    assert seen == [True, True, True, False]


async def test_a_renewal_under_way_brings_no_removed_token_back() -> None:
    cluster = Cluster()
    token_hmac = await cluster.create()
    renewal: list[TokenChange] = []

    async def later(changes: Sequence[TokenChange]) -> None:
        renewal.extend(changes)

    cluster.tokens._record = later
    await cluster.tokens.renew(ALICE, token_hmac, -1)
    cluster.tokens._record = cluster.record
    await cluster.tokens.expire(ALICE, token_hmac, -1)
    await cluster.record(renewal)
    assert cluster.stored == {}


async def test_expired_tokens_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "REMOVED_AT_ONCE", 2)
    cluster = Cluster()
    for lifetime_ms in (1_000, 1_000, 1_000, 2_000, -1):
        await cluster.create(lifetime_ms=lifetime_ms)
    assert await cluster.tokens.remove_expired() == 0
    cluster.now_ms += 1_000
    assert await cluster.tokens.remove_expired() == 0, "its last millisecond"
    cluster.now_ms += 1
    cluster.records.clear()
    assert await cluster.tokens.remove_expired() == 3
    assert list(cluster.stored) == ["id-3", "id-4"] and cluster.records == [2, 1]


async def test_a_token_found_by_its_hmac_among_others_that_come_and_go() -> None:
    cluster = Cluster()
    secrets = [await cluster.create() for _ in range(3)]
    for each in (secrets[1], secrets[0]):
        await cluster.tokens.expire(ALICE, each, -1)
        await fails(MISSING, cluster.tokens.renew(ALICE, each, -1))
        await cluster.tokens.renew(ALICE, secrets[2], -1)
    await cluster.tokens.renew(ALICE, await cluster.create(), -1)


def log_in(
    tokens: DelegationTokens, mechanism: ScramMechanism, user: str, password: str, extension: str
) -> Authenticated:
    exchange = ScramExchange(
        mechanism, lambda user: None, "n", b"s", lambda token_id: tokens.login_of(mechanism, token_id)
    )
    first = f"n={user},r=c{extension}"
    server_first = exchange.respond(f"n,,{first}".encode())
    assert isinstance(server_first, bytes)
    done = exchange.respond(prove(mechanism, first, server_first.decode(), "c=biws,r=cn", password))
    assert isinstance(done, Authenticated)
    return done


@each_case("mechanism", [SHA_256, SHA_512], ids=lambda each: each.name)
@each_case("extension", [",tokenauth=true", ",tokenauth=TRUE,other=x", ",other=x,tokenauth=true"])
async def test_a_token_logs_its_owner_in(mechanism: ScramMechanism, extension: str) -> None:
    cluster = Cluster()
    token = await cluster.tokens.create(BOB, ALICE, (), -1)
    password = base64.b64encode(cluster.tokens.hmac_of(token)).decode()
    for _ in range(2):
        done = log_in(cluster.tokens, mechanism, token.token_id, password, extension)
        assert (done.name, done.expires_ms, done.is_token) == ("bob", NOW + DAY, True)
    with pytest.raises(AuthenticationFailed, match="the password of delegation token id-0 is wrong"):
        log_in(cluster.tokens, mechanism, token.token_id, "other", extension)
    with pytest.raises(AuthenticationFailed, match="there is no delegation token id-9 with SCRAM"):
        log_in(cluster.tokens, mechanism, "id-9", password, extension)
    for other in ("", ",tokenauth=false", ",tokenauth=truely", ",xtokenauth=true"):
        with pytest.raises(AuthenticationFailed, match="there is no user id-0 with SCRAM"):
            log_in(cluster.tokens, mechanism, token.token_id, password, other)
    await cluster.tokens.expire(BOB, cluster.tokens.hmac_of(token), -1)
    with pytest.raises(AuthenticationFailed, match="there is no delegation token id-0 with SCRAM"):
        log_in(cluster.tokens, mechanism, token.token_id, password, extension)


async def test_credentials_are_made_once_and_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    for _ in range(3):
        await cluster.create()
    monkeypatch.setattr(delegation_tokens, "MAX_CREDENTIALS", 2)
    first = cluster.tokens.login_of(SHA_256, "id-0")
    again = cluster.tokens.login_of(SHA_256, "id-0")
    assert first is not None and again is not None and first.credential is again.credential
    for token_id in ("id-1", "id-2"):
        assert cluster.tokens.login_of(SHA_256, token_id) is not None
    assert len(cluster.tokens._credentials) == 1
    assert cluster.tokens.login_of(SHA_256, "id-0") == first, "with the same salt"
