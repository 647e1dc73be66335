"""broker/authorization/authorizer.py: cached decisions, super users, the log of denials."""

from __future__ import annotations

import logging

import pytest

from lockstep.broker.authorization import authorizer as module
from lockstep.broker.authorization.acl import AclBinding
from lockstep.broker.authorization.acl_cache import AclCache
from lockstep.broker.authorization.authorizer import ALLOW_ALL, StandardAuthorizer
from lockstep.broker.requests.kafka_principal import KafkaPrincipal
from lockstep.broker.requests.request_context import ClientContext
from lockstep.protocol.acl_codes import AclOperation, AclPermissionType, AclResourceType, PatternType
from lockstep.protocol.api import ApiKey
from lockstep.storage.rate_limited_log import RateLimitedLog

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
READ, DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE


def acl(operation: AclOperation = READ, name: str = "t") -> AclBinding:
    return AclBinding(TOPIC, name, PatternType.LITERAL, "User:a", "*", operation, AclPermissionType.ALLOW)


def client(name: str = "a", host: str = "10.0.0.1") -> ClientContext:
    return ClientContext("PLAINTEXT", f"{host}:999", "10.0.0.2", KafkaPrincipal("User", name))


def authorizer(acls: AclCache, *super_users: str) -> StandardAuthorizer:
    return StandardAuthorizer(acls, super_users, RateLimitedLog(lambda: 0.0, module.log))


def test_without_an_authorizer() -> None:
    access = ALLOW_ALL.access(ApiKey.FETCH)
    assert not ALLOW_ALL.is_enabled and not access.is_checked
    assert access.allows(client(), READ, TOPIC, "t")
    assert access.allows_on_cluster(client(), READ)
    assert access.allows_on_any(client(), READ, TOPIC)
    topic, group = (access.authorized_operations(client(), each, "t") for each in (TOPIC, GROUP))
    bits = [
        [n for n in range(32) if each >> n & 1]
        for each in (topic, group, access.cluster_operations(client()))
    ]
    assert bits == [[3, 4, 5, 6, 7, 8, 10, 11], [3, 6, 8, 10, 11], [5, 7, 8, 9, 10, 11, 12]]


def test_a_change_counts_at_once() -> None:
    """The planted mistake "stale cache": the same connection asks before and after each change."""
    acls, connection = AclCache(), client()
    access = authorizer(acls).access(ApiKey.FETCH)
    assert not access.allows(connection, READ, TOPIC, "t")
    acls.add(acl())
    assert access.allows(connection, READ, TOPIC, "t")
    assert access.allows_on_any(connection, READ, TOPIC)
    acls.remove(acl())
    assert not access.allows(connection, READ, TOPIC, "t")
    assert not access.allows_on_any(connection, READ, TOPIC)


def test_another_user_on_the_same_connection() -> None:
    acls, connection = AclCache(), client()
    acls.add(acl())
    access = authorizer(acls).access(ApiKey.FETCH)
    assert access.allows(connection, READ, TOPIC, "t")
    connection.principal = KafkaPrincipal("User", "b")
    assert not access.allows(connection, READ, TOPIC, "t")


def test_super_users() -> None:
    access = authorizer(AclCache(), "User:root").access(ApiKey.FETCH)
    assert access.allows(client("root"), READ, TOPIC, "t")
    assert access.allows_on_any(client("root"), READ, TOPIC)
    assert not access.allows(client("roo"), READ, TOPIC, "t")


def test_authorized_operations() -> None:
    acls = AclCache()
    acls.add(acl())
    access = authorizer(acls).access(ApiKey.METADATA)
    assert access.authorized_operations(client(), TOPIC, "t") == 1 << READ | 1 << DESCRIBE
    assert access.cluster_operations(client()) == 0


def test_a_decision_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    acls = AclCache()
    acls.add(acl())
    access = authorizer(acls).access(ApiKey.FETCH)
    assert access.allows(client(), READ, TOPIC, "t")
    monkeypatch.setattr(AclCache, "decide", None)  # another connection of the same user and host
    assert access.allows(client(), READ, TOPIC, "t")


def test_the_cached_decisions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLIENTS", 3)
    monkeypatch.setattr(module, "MAX_DECISIONS", 5)
    made = authorizer(AclCache())
    access = made.access(ApiKey.FETCH)
    for number in range(20):
        connection = client(host=f"10.0.0.{number}")
        for topic in range(20):
            access.allows(connection, READ, TOPIC, f"t{topic}")
        assert len(made.decisions_of(connection).by_action) <= 5
        assert len(made._by_client) <= 3


def test_a_denial_is_logged_once_and_what_is_left_out_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockstep.authorizer")
    access = authorizer(AclCache()).access(ApiKey.FETCH)
    for _ in range(3):
        access.allows(client(), READ, TOPIC, "t")
        access.allows(client(), READ, TOPIC, "unseen", is_requested=False)
    assert caplog.messages == [
        "Principal = User:a is Denied operation = READ from host = 10.0.0.1 on resource = TOPIC:LITERAL:t "
        "for request = FETCH based on rule DefaultDeny"
    ]
    access.allows_on_any(client(), READ, TOPIC)
    assert "on resource = TOPIC:any resource of the type" in caplog.messages[1]


def test_what_is_allowed_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lockstep.authorizer")
    acls = AclCache()
    acls.add(acl(name="t\nt"))
    access = authorizer(acls).access(20000)
    assert access.allows(client(), READ, TOPIC, "t\nt")
    (line,) = caplog.messages
    rule = "ALLOW READ to User:a from * on LITERAL:t?t"
    assert line.endswith(f"for request = LOCKSTEP_CLUSTER based on rule {rule}")
