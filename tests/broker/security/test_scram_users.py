"""Changes of SCRAM users: errors, their texts and their order, as Kafka 4.4.0 answered them."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.security import scram_users
from lockstep.broker.security.scram import SHA_256, Credential, salted_credential
from lockstep.broker.security.scram_users import Requested, ScramChange, ScramUsers
from lockstep.protocol.errors import ErrorCode
from tests.support.cases import each_case

SALT, SALTED = b"s" * 16, b"p" * 32
TWICE = "A user credential cannot be altered twice in the same request"
ABSENT = "Attempt to delete a user credential that does not exist"


class Stored:
    """A store; `failure` is what it answers."""

    def __init__(self) -> None:
        self.credentials: dict[tuple[str, str], Credential] = {}
        self.failure: RequestError | None = None
        self.users = ScramUsers(lambda: self.credentials, self.record)

    async def record(self, changes: Sequence[ScramChange]) -> None:
        if self.failure is not None:
            raise self.failure
        for each in changes:
            self.credentials.pop((each.mechanism, each.user), None)
            if each.credential is not None:
                self.credentials[each.mechanism, each.user] = each.credential

    async def change(self, *requested: Requested) -> dict[str, tuple[ErrorCode, str] | None]:
        results = await self.users.change(requested)
        return {user: (error.error, error.message) if error else None for user, error in results.items()}


def upsert(user: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = SALT) -> Requested:
    return Requested(user, mechanism, iterations, salt, SALTED)


async def test_users_are_set_described_and_deleted() -> None:
    stored = Stored()
    assert await stored.change(upsert("b"), upsert("a", 2, 16_384)) == {"a": None, "b": None}
    assert stored.credentials["SCRAM-SHA-256", "b"] == salted_credential(SHA_256, SALT, SALTED, 4096)
    assert await stored.change(upsert("a", 1)) == {"a": None}
    assert stored.users.names() == ["a", "b"]
    assert stored.users.describe("a") == [(1, 4096), (2, 16_384)]
    assert await stored.change(Requested("a", 2)) == {"a": None}
    assert stored.users.describe("a") == [(1, 4096)] and stored.users.describe("nobody") == []
    assert await stored.change() == {}


@each_case(
    ("requested", "error", "text"),
    [
        ([upsert("a"), upsert("a", 2)], ErrorCode.DUPLICATE_RESOURCE, TWICE),
        ([Requested("here", 1), upsert("here")], ErrorCode.DUPLICATE_RESOURCE, TWICE),
        ([upsert("a", 0), upsert("a")], ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ([Requested("a", 9)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ([upsert("a", 1, 4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        ([upsert("a", 1, 16_385)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        ([upsert("")], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ([Requested("", 1)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ([upsert("x" * 251)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username has 251 characters"),
        ([Requested("nobody", 1)], ErrorCode.RESOURCE_NOT_FOUND, ABSENT),
        ([Requested("here", 2)], ErrorCode.RESOURCE_NOT_FOUND, ABSENT),
        (
            [Requested("a", 1, 4096, SALT, b"")],
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "A salted password has 1 to 256 bytes",
        ),
        (
            [upsert("a", salt=b"s" * 257)],
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "A salted password has 1 to 256 bytes",
        ),
    ],
)
async def test_an_error_changes_nothing_of_its_user(
    requested: list[Requested], error: ErrorCode, text: str
) -> None:
    stored = Stored()
    await stored.change(upsert("here"))
    (user,) = {each.user for each in requested}
    assert await stored.change(*requested, upsert("other")) == {user: (error, text), "other": None}
    assert stored.users.names() == ["here", "other"]


async def test_an_empty_salt_is_taken_as_kafka_takes_it() -> None:
    assert await Stored().change(upsert("a", salt=b"")) == {"a": None}


async def test_a_store_that_fails_is_the_answer_for_all() -> None:
    stored = Stored()
    stored.failure = RequestError(ErrorCode.NOT_CONTROLLER, "elsewhere")
    moved = (ErrorCode.NOT_CONTROLLER, "elsewhere")
    assert await stored.change(upsert("a"), upsert("b")) == {"a": moved, "b": moved}


async def test_there_is_an_end_to_users() -> None:
    stored = Stored()
    scram_users.MAX_USERS, former = 2, scram_users.MAX_USERS
    try:
        await stored.change(upsert("a"), upsert("b"))
        full = (ErrorCode.POLICY_VIOLATION, "2 credentials are stored, at most 2 can be")
        assert await stored.change(upsert("c")) == {"c": full}
        assert await stored.change(upsert("a", iterations=8192), Requested("b", 1)) == {"a": None, "b": None}
    finally:
        scram_users.MAX_USERS = former
