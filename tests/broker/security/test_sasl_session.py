"""The life of a connection with logins: each row of the table, as Kafka 4.4.0 answered it on the wire."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.broker.security.sasl_exchange import Authenticated, AuthenticationFailed
from lockstep.broker.security.sasl_session import (
    ConnectionAction,
    LoginState,
    Mechanism,
    SaslResponse,
    SaslSession,
)
from lockstep.protocol.errors import ErrorCode
from tests.support.cases import each_case

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
ILLEGAL = ErrorCode.ILLEGAL_SASL_STATE
EPOCH = 1_000_000
ALL_FAILURES = "Authentication failed during {} due to invalid credentials with SASL mechanism ONE"


class Scripted:
    """A mechanism: `more` needs another token, `NAME` and `NAME until TIME` log in, `!text` fails."""

    def respond(self, token: bytes) -> bytes | Authenticated:
        text = token.decode()
        if text.startswith("!"):
            raise AuthenticationFailed("planted", text[1:] or None)
        if text == "more":
            return b"more?"
        name, _, expires = text.partition(" until ")
        return Authenticated(b"done", name, int(expires) if expires else None)


def session(max_reauth_ms: int = 0) -> SaslSession:
    return SaslSession({"ONE": Mechanism(Scripted, max_reauth_ms), "TWO": Mechanism(Scripted, max_reauth_ms)})


def log_in(found: SaslSession, token: str = "alice", now_ms: int = 0, version: int = 1) -> SaslResponse:
    assert found.on_handshake(version, "ONE", now_ms) == SaslResponse(lists_mechanisms=True)
    return found.on_authenticate(token.encode(), now_ms, EPOCH)


def test_a_login_in_several_tokens() -> None:
    found = session()
    assert found.mechanism_names == ["ONE", "TWO"] and not found.is_open
    assert log_in(found, "more") == SaslResponse(token=b"more?") and not found.is_open
    assert found.on_authenticate(b"alice", 0, EPOCH) == SaslResponse(token=b"done")
    assert found.is_open and found.name == "alice" and not found.has_expired(10**12)


@each_case("version", [0, 1])
def test_tokens_come_as_the_version_of_the_handshake_has_them(version: int) -> None:
    found = session()
    found.on_handshake(version, "ONE", 0)
    assert found.takes_raw_tokens == (version == 0)
    found.on_authenticate(b"alice", 0, EPOCH)
    assert not found.takes_raw_tokens


def test_api_versions_comes_before_the_handshake_and_once_well() -> None:
    found = session()
    for _ in range(2):
        assert found.on_api_versions() == SaslResponse()  # the first one was of an unknown version
    found.on_api_versions_served()
    again = found.on_api_versions()
    assert again.action is ConnectionAction.CLOSE and again.is_silent and found.state is LoginState.CLOSED


@each_case(
    ("act", "text"),
    [
        (lambda found: found.on_other("METADATA"), "METADATA before a login"),
        (lambda found: found.on_unknown("API 99"), "API 99 before a login, in a version"),
        (lambda found: found.on_authenticate(b"alice", 0, EPOCH), "SaslAuthenticate before SaslHandshake"),
    ],
)
def test_what_closes_at_once_at_the_start(act: Callable[[SaslSession], SaslResponse], text: str) -> None:
    answer = act(session())
    assert answer.action is ConnectionAction.CLOSE and answer.is_silent and answer.log.startswith(text)


def test_an_unknown_mechanism_lists_the_enabled_ones() -> None:
    found = session()
    answer = found.on_handshake(1, "THREE", 0)
    assert (answer.error, answer.action) == (
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ConnectionAction.CLOSE_AFTER_DELAY,
    )
    assert answer.lists_mechanisms and "THREE, enabled are ONE, TWO" in answer.log
    assert found.state is LoginState.CLOSED


@each_case(
    "act",
    [
        lambda found: found.on_api_versions(),
        lambda found: found.on_other("METADATA"),
        lambda found: found.on_handshake(1, "ONE", 0),
    ],
)
def test_another_request_in_the_middle_of_a_login(act: Callable[[SaslSession], SaslResponse]) -> None:
    found = session()
    found.on_handshake(1, "ONE", 0)
    answer = act(found)
    assert (answer.error, answer.action, answer.is_silent) == (
        ILLEGAL,
        ConnectionAction.CLOSE_AFTER_DELAY,
        False,
    )
    assert found.on_authenticate(b"alice", 0, EPOCH).action is ConnectionAction.CLOSE, (
        "nothing is served after it"
    )


@each_case(("token", "text"), [("!", ALL_FAILURES.format("authentication")), ("!Own text", "Own text")])
@each_case("version", [0, 1])
def test_a_failed_login(version: int, token: str, text: str) -> None:
    found = session()
    answer = log_in(found, token, version=version)
    assert (answer.error, answer.text, answer.action) == (FAILED, text, ConnectionAction.CLOSE_AFTER_DELAY)
    assert answer.is_silent == (version == 0) and answer.log == "authentication by ONE failed: planted"
    assert found.name is None and not found.is_open


@each_case(
    ("max_reauth_ms", "token", "lifetime_ms"),
    [
        (0, "alice", 0),
        (-5, "alice", 0),
        (4_000, "alice", 4_000),
        (0, f"alice until {EPOCH + 700}", 700),
        (4_000, f"alice until {EPOCH + 700}", 700),
        (4_000, f"alice until {EPOCH + 9_000}", 4_000),
    ],
)
def test_a_login_lives_as_long_as_the_shorter_of_both(
    max_reauth_ms: int, token: str, lifetime_ms: int
) -> None:
    found = session(max_reauth_ms)
    assert log_in(found, token, 100).lifetime_ms == lifetime_ms
    assert not found.has_expired(100 + lifetime_ms)
    assert found.has_expired(101 + lifetime_ms) == bool(lifetime_ms)
    answer = found.on_expired_login("METADATA")
    assert answer.action is ConnectionAction.CLOSE and answer.is_silent


def test_a_token_that_is_over_is_no_login() -> None:
    answer = log_in(session(4_000), f"alice until {EPOCH}")
    assert (answer.error, answer.text) == (FAILED, ALL_FAILURES.format("authentication"))


def test_without_a_lifetime_nobody_logs_in_again() -> None:
    found = session()
    log_in(found)
    assert found.on_handshake(1, "ONE", 10_000) == SaslResponse(ILLEGAL)
    authenticate = found.on_authenticate(b"alice", 10_000, EPOCH)
    assert (authenticate.error, authenticate.action) == (ILLEGAL, ConnectionAction.KEEP_OPEN)
    assert found.is_open


def test_a_login_again_once_a_second() -> None:
    found = session(4_000)
    log_in(found)
    assert log_in(found, now_ms=10) == SaslResponse(token=b"done", lifetime_ms=4_000)
    assert found.on_handshake(1, "ONE", 1_009) == SaslResponse(ILLEGAL) and found.is_open
    assert log_in(found, now_ms=1_010).error is ErrorCode.NONE
    assert not found.has_expired(5_010) and found.has_expired(5_011)
    assert log_in(found, now_ms=9_000).error is ErrorCode.NONE, "also after the end of the last one"


def test_a_login_again_that_fails() -> None:
    found = session(4_000)
    log_in(found)
    answer = log_in(found, "!", 2_000)
    assert (answer.text, answer.action) == (
        ALL_FAILURES.format("re-authentication"),
        ConnectionAction.CLOSE_AFTER_DELAY,
    )


def test_a_login_again_of_another_user() -> None:
    found = session(4_000)
    log_in(found)
    answer = log_in(found, "bob", 2_000)
    assert (answer.error, answer.action) == (
        FAILED,
        ConnectionAction.CLOSE_AFTER_DELAY,
    ) and found.name == "alice"
    assert answer.text == "Cannot change principals during re-authentication from User.alice: User.bob"


def test_a_login_again_by_another_mechanism() -> None:
    found = session(4_000)
    log_in(found)
    assert found.on_handshake(1, "TWO", 2_000).error is ErrorCode.NONE
    answer = found.on_authenticate(b"alice", 2_000, EPOCH)
    assert (answer.action, answer.is_silent) == (ConnectionAction.CLOSE_AFTER_DELAY, True)
    unknown = session(4_000)
    log_in(unknown)
    answer = unknown.on_handshake(1, "THREE", 2_000)
    assert (answer.action, answer.is_silent) == (ConnectionAction.CLOSE, True)
