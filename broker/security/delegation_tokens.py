"""Delegation tokens (KIP-48): credentials that a user hands to others, who are that user until their end.

Pure: time, ids and the storing of a token are arguments. Owns: `DelegationToken`, `DelegationTokenCache` with
those that are stored, and `DelegationTokens` with the rules and errors of creation, renewal and expiry, in
Kafka's order. Invariants: what is stored of a token has no secret, its password (the HMAC of its id) follows
from `delegation.token.secret.key`; the cache changes by replay alone; a token that was removed is not brought
back by a renewal under way. Does not: check how a client has authenticated, or ACLs (the handlers do).
Source: Kafka's DelegationTokenControlManager, DelegationTokenManager and DelegationTokenCache.
"""

from __future__ import annotations

import base64
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.kafka_principal import KafkaPrincipal
from lockstep.broker.security.scram import (
    MIN_ITERATIONS,
    SALT_BYTES,
    Credential,
    ScramMechanism,
    TokenLogin,
    salt_password,
    salted_credential,
)
from lockstep.protocol.errors import ErrorCode

MAX_TOKENS: Final = 10_000
"""LIMIT. Stored tokens: each is in the memory of every node and in each checkpoint."""
MAX_TOKENS_OF_PRINCIPAL: Final = 1_000
"""LIMIT. Stored tokens that one principal owns or has requested, so that it leaves room for others."""
MAX_RENEWERS_BYTES: Final = 2_048
"""LIMIT. Bytes of the names of those who may renew a token, in UTF-8: 2 MB of one principal's tokens."""
MAX_PRINCIPALS: Final = 100
"""LIMIT. Principals of a token: owner, requester and those who may renew it."""
MAX_NAME_CHARACTERS: Final = 1_000
"""LIMIT. Characters of the principals of a token; the subject of a certificate is long."""
MAX_CREDENTIALS: Final = 2 * MAX_TOKENS
"""LIMIT. Credentials of tokens that have been used to log in; of more all are forgotten and made again."""
MAX_TIME_MS: Final = 2**63 - 1
REMOVED_AT_ONCE: Final = 1_000
"""Expired tokens that are removed by one record batch."""


@dataclass(frozen=True)
class DelegationToken:
    """A token as it is stored; times are in milliseconds since 1970."""

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_ms: int
    max_ms: int
    """The end of its lifetime, which no renewal moves."""
    expiry_ms: int
    """Its end unless it is renewed."""

    def has_expired(self, now_ms: int) -> bool:
        """True for a token that is not valid any more."""
        return min(self.max_ms, self.expiry_ms) < now_ms

    def may_renew(self, principal: KafkaPrincipal) -> bool:
        """True for those who may change its end. Kafka does not count the requester among them."""
        return principal == self.owner or principal in self.renewers

    def is_visible_to(self, principal: KafkaPrincipal) -> bool:
        """True for those who see it without an ACL."""
        return principal == self.requester or self.may_renew(principal)


@dataclass(frozen=True)
class NewExpiry:
    """A token ends at another time; an unknown token stays unknown."""

    token_id: str
    expiry_ms: int


@dataclass(frozen=True)
class Removal:
    """The removal of a token."""

    token_id: str


TokenChange = DelegationToken | NewExpiry | Removal


class DelegationTokenCache(Mapping[str, DelegationToken]):
    """The stored tokens by id, the oldest first, by HMAC, and how many a principal has."""

    def __init__(self) -> None:
        self._tokens: dict[str, DelegationToken] = {}
        self._secret = b""
        self._ids: dict[bytes, str] = {}
        """HMAC -> id; empty without a secret."""
        self._counts: Counter[KafkaPrincipal] = Counter()

    def __getitem__(self, token_id: str) -> DelegationToken:
        return self._tokens[token_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def use_secret(self, secret: bytes) -> None:
        """Find tokens by the HMACs of this secret."""
        self._secret = secret
        self._ids = {token_hmac(secret, each): each for each in self._tokens} if secret else {}

    def put(self, token: DelegationToken) -> None:
        """Add a token, or replace the one with its id."""
        former = self._tokens.get(token.token_id)
        self._tokens[token.token_id] = token
        self._count(token, 1)
        if former is not None:
            self._count(former, -1)
        elif self._secret:
            self._ids[token_hmac(self._secret, token.token_id)] = token.token_id

    def remove(self, token_id: str) -> None:
        """Remove a token if it is there."""
        token = self._tokens.pop(token_id, None)
        if token is not None:
            self._ids.pop(token_hmac(self._secret, token_id), None)
            self._count(token, -1)

    def clear(self) -> None:
        """Remove all tokens."""
        self._tokens.clear()
        self._ids.clear()
        self._counts.clear()

    def find(self, given_hmac: bytes) -> DelegationToken | None:
        """The token of an HMAC, found without the HMACs of others."""
        return self._tokens.get(self._ids.get(given_hmac, ""))

    def count_of(self, principal: KafkaPrincipal) -> int:
        """The number of tokens that a principal owns or has requested."""
        return self._counts[principal]

    def _count(self, token: DelegationToken, change: int) -> None:
        for each in {token.owner, token.requester}:
            self._counts[each] += change
            if not self._counts[each]:
                del self._counts[each]


def token_hmac(secret: bytes, token_id: str) -> bytes:
    """The secret part of a token: HmacSHA512 of its id."""
    return hmac.digest(secret, token_id.encode(), "sha512")


@dataclass(frozen=True)
class DelegationTokenRules:
    """The settings of tokens; without a secret there are none."""

    secret: str = field(default="", repr=False)
    max_lifetime_ms: int = 604_800_000
    expiry_ms: int = 86_400_000


class DelegationTokens:
    """See the module.

    Args:
        stored: the tokens that are stored.
        record: stores changes; they are in force when it returns. Raises RequestError.
        now_ms: the time of day.
        new_id: the id of a new token.
    """

    def __init__(
        self,
        rules: DelegationTokenRules,
        stored: DelegationTokenCache,
        record: Callable[[Sequence[TokenChange]], Awaitable[None]],
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._rules, self._stored, self._record = rules, stored, record
        self._now_ms, self._new_id = now_ms, new_id
        self._secret = rules.secret.encode()
        stored.use_secret(self._secret)
        self._creating: Counter[KafkaPrincipal] = Counter()
        """Tokens that are being stored, by principal."""
        self._creating_count = 0
        self._credentials: dict[tuple[str, str], Credential] = {}

    @property
    def is_enabled(self) -> bool:
        """True where there is a secret."""
        return bool(self._secret)

    def hmac_of(self, token: DelegationToken) -> bytes:
        """The secret part of a token."""
        return token_hmac(self._secret, token.token_id)

    async def create(
        self,
        owner: KafkaPrincipal,
        requester: KafkaPrincipal,
        renewers: Sequence[KafkaPrincipal],
        lifetime_ms: int,
    ) -> DelegationToken:
        """A new token. Args: lifetime_ms: 0 or less for the longest. Raises RequestError."""
        self._check_enabled()
        _check_principals([owner, requester], renewers)
        counted = {owner, requester}
        self._check_room(counted)
        longest, now_ms = self._rules.max_lifetime_ms, self._now_ms()
        max_ms = _sum(now_ms, min(longest, lifetime_ms) if lifetime_ms > 0 else longest)
        expiry_ms = min(max_ms, _sum(now_ms, self._rules.expiry_ms))
        token = DelegationToken(self._new_id(), owner, requester, tuple(renewers), now_ms, max_ms, expiry_ms)
        self._creating.update(counted)
        self._creating_count += 1
        try:
            await self._record([token])
        finally:
            self._creating_count -= 1
            self._creating -= Counter(counted)
        return token

    async def renew(self, principal: KafkaPrincipal, given_hmac: bytes, period_ms: int) -> int:
        """The new end of a token. Args: period_ms: 0 or less for the longest. Raises RequestError."""
        token, now_ms = self._find(given_hmac), self._now_ms()
        if token.has_expired(now_ms):
            raise RequestError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "")
        if not token.may_renew(principal):
            raise RequestError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "")
        longest = self._rules.expiry_ms
        period_ms = min(longest, period_ms) if period_ms > 0 else longest
        return await self._end_at(token, _sum(now_ms, period_ms))

    async def expire(self, principal: KafkaPrincipal, given_hmac: bytes, period_ms: int) -> int:
        """The new end of a token. Args: period_ms: less than 0 removes it. Raises RequestError."""
        token, now_ms = self._find(given_hmac), self._now_ms()
        if not token.may_renew(principal):
            raise RequestError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "")
        if period_ms < 0:
            await self._record([Removal(token.token_id)])
            return now_ms
        if token.has_expired(now_ms):
            raise RequestError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "")
        return await self._end_at(token, _sum(now_ms, period_ms))

    def select(self, predicate: Callable[[DelegationToken], bool]) -> list[DelegationToken]:
        """Stored tokens, the oldest first. Raises RequestError."""
        self._check_enabled()
        return [each for each in self._stored.values() if predicate(each)]

    async def remove_expired(self) -> int:
        """Remove expired tokens; how many. Raises RequestError."""
        now_ms = self._now_ms()
        expired = [Removal(each.token_id) for each in self._stored.values() if each.has_expired(now_ms)]
        for first in range(0, len(expired), REMOVED_AT_ONCE):
            await self._record(expired[first : first + REMOVED_AT_ONCE])
        return len(expired)

    def login_of(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        """The login by a token: its id is the user, its HMAC in base64 the password. None for no token."""
        token = self._stored.get(token_id) if self.is_enabled else None
        if token is None:
            return None
        key = mechanism.name, token_id
        credential = self._credentials.get(key)
        if credential is None:
            salt = hmac.digest(self._secret, "\0".join(key).encode(), "sha256")[:SALT_BYTES]
            password = base64.b64encode(self.hmac_of(token)).decode()
            salted = salt_password(mechanism, password, salt, MIN_ITERATIONS)
            credential = salted_credential(mechanism, salt, salted, MIN_ITERATIONS)
            if len(self._credentials) >= MAX_CREDENTIALS:
                self._credentials.clear()
            self._credentials[key] = credential
        return TokenLogin(credential, token.owner.name, min(token.expiry_ms, token.max_ms))

    def _find(self, given_hmac: bytes) -> DelegationToken:
        """The token of an HMAC. Raises RequestError."""
        self._check_enabled()
        token = self._stored.find(given_hmac)
        if token is None:
            raise RequestError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "")
        return token

    async def _end_at(self, token: DelegationToken, expiry_ms: int) -> int:
        expiry_ms = min(token.max_ms, expiry_ms)
        await self._record([NewExpiry(token.token_id, expiry_ms)])
        return expiry_ms

    def _check_enabled(self) -> None:
        if not self.is_enabled:
            raise RequestError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "")

    def _check_room(self, counted: Collection[KafkaPrincipal]) -> None:
        """Raises RequestError where the cluster or one of the principals has as many as may be."""
        if len(self._stored) + self._creating_count >= MAX_TOKENS:
            raise RequestError(ErrorCode.POLICY_VIOLATION, f"at most {MAX_TOKENS} tokens are stored")
        for each in counted:
            if self._stored.count_of(each) + self._creating[each] >= MAX_TOKENS_OF_PRINCIPAL:
                text = f"{each} owns or has requested {MAX_TOKENS_OF_PRINCIPAL} tokens, as many as it may"
                raise RequestError(ErrorCode.POLICY_VIOLATION, text)


def _check_principals(named: Sequence[KafkaPrincipal], renewers: Sequence[KafkaPrincipal]) -> None:
    """Raises RequestError for more than the limits of one token."""
    longest = max(len(str(each)) for each in (*named, *renewers))
    if len(named) + len(renewers) > MAX_PRINCIPALS or longest > MAX_NAME_CHARACTERS:
        raise RequestError(ErrorCode.INVALID_REQUEST, "more or longer principals than a token may have")
    if sum(len(str(each).encode()) for each in renewers) > MAX_RENEWERS_BYTES:
        text = f"the names of the renewers have more than {MAX_RENEWERS_BYTES} bytes"
        raise RequestError(ErrorCode.INVALID_REQUEST, text)


def _sum(time_ms: int, period_ms: int) -> int:
    return min(time_ms + period_ms, MAX_TIME_MS)
