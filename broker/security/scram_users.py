"""The SCRAM users of the cluster: how their credentials are described and changed (KIP-554).

Owns: the checks and errors of a change, and `ScramUsers`, through which the handlers of `api/` go. Does not:
store anything (`broker/metadata/metadata_image.py`), or check a login (`scram.py`). Source: Kafka's
ScramControlManager and DescribeUserScramCredentials of its image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.security.scram import (
    BY_NUMBER,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    Credential,
    ScramMechanism,
    salted_credential,
)
from lockstep.protocol.errors import ErrorCode

MAX_USERS: int = 10_000
"""LIMIT. Stored credentials: each is in the memory of every node and in each checkpoint."""
MAX_NAME_CHARACTERS: int = 250
"""LIMIT. Characters of a user's name."""
MAX_SECRET_BYTES: int = 256
"""LIMIT. Bytes of a salt or of a salted password."""

UserCredentials = Mapping[tuple[str, str], Credential]
"""Mechanism and user -> credential."""


@dataclass(frozen=True)
class ScramChange:
    """A new credential of a user, or its deletion (None)."""

    mechanism: str
    user: str
    credential: Credential | None


@dataclass(frozen=True)
class Requested:
    """A change as a client requests it; without salted password a deletion."""

    user: str
    mechanism: int
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes | None = field(default=None, repr=False)


class ScramUsers:
    """See the module.

    Args:
        credentials: those that are stored now.
        record: stores changes; they are in force when it returns.
    """

    def __init__(
        self,
        credentials: Callable[[], UserCredentials],
        record: Callable[[Sequence[ScramChange]], Awaitable[None]],
    ) -> None:
        self._credentials, self._record = credentials, record

    def describe(self, user: str) -> list[tuple[int, int]]:
        """Number and iterations of each mechanism that a user has."""
        stored = self._credentials()
        found = [(each.number, stored.get((each.name, user))) for each in BY_NUMBER.values()]
        return [(number, each.iterations) for number, each in found if each is not None]

    def names(self) -> list[str]:
        """All users, in order."""
        return sorted({user for _, user in self._credentials()})

    async def change(self, requested: Sequence[Requested]) -> dict[str, RequestError | None]:
        """Make changes; by user None or the error. A user that has an error keeps all credentials."""
        counts = Counter(each.user for each in requested)
        results: dict[str, RequestError | None] = dict.fromkeys(counts)
        changes: list[ScramChange] = []
        for each in requested:
            try:
                change = self._check(each)
                if counts[each.user] > 1:
                    text = "A user credential cannot be altered twice in the same request"
                    raise RequestError(ErrorCode.DUPLICATE_RESOURCE, text)
                changes.append(change)
            except RequestError as error:
                results[each.user] = results[each.user] or error
        try:
            if changes:
                self._check_room(changes)
                await self._record(changes)
        except RequestError as error:
            results |= {each.user: error for each in changes}
        return results

    def _check(self, requested: Requested) -> ScramChange:
        """Raises RequestError."""
        if not requested.user or len(requested.user) > MAX_NAME_CHARACTERS:
            problem = "must not be empty" if not requested.user else f"has {len(requested.user)} characters"
            raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username {problem}")
        mechanism = BY_NUMBER.get(requested.mechanism)
        if mechanism is None:
            raise RequestError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if requested.salted_password is None:
            if (mechanism.name, requested.user) not in self._credentials():
                text = "Attempt to delete a user credential that does not exist"
                raise RequestError(ErrorCode.RESOURCE_NOT_FOUND, text)
            return ScramChange(mechanism.name, requested.user, None)
        return ScramChange(mechanism.name, requested.user, _credential(mechanism, requested))

    def _check_room(self, changes: Iterable[ScramChange]) -> None:
        stored = self._credentials()
        added = sum(
            each.credential is not None and (each.mechanism, each.user) not in stored for each in changes
        )
        if added and len(stored) + added > MAX_USERS:
            text = f"{len(stored)} credentials are stored, at most {MAX_USERS} can be"
            raise RequestError(ErrorCode.POLICY_VIOLATION, text)


def _credential(mechanism: ScramMechanism, requested: Requested) -> Credential:
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    if requested.iterations < MIN_ITERATIONS:
        raise RequestError(unacceptable, "Too few iterations")
    if requested.iterations > MAX_ITERATIONS:
        raise RequestError(unacceptable, "Too many iterations")
    salted = requested.salted_password or b""
    if not salted or max(len(requested.salt), len(salted)) > MAX_SECRET_BYTES:
        raise RequestError(unacceptable, f"A salted password has 1 to {MAX_SECRET_BYTES} bytes")
    return salted_credential(mechanism, requested.salt, salted, requested.iterations)
