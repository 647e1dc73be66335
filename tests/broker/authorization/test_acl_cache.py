"""broker/authorization/acl_cache.py against a model that looks at every ACL, and by example."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.broker.authorization.acl import (
    AclBinding,
    AclBindingFilter,
    InvalidAcl,
    parse_host,
)
from lockstep.broker.authorization.acl_cache import DEFAULT_ALLOW, DEFAULT_DENY, AclCache
from lockstep.protocol.acl_codes import AclOperation as Op
from lockstep.protocol.acl_codes import AclPermissionType, AclResourceType, PatternType
from tests.broker.authorization import naive_authorizer
from tests.support.cases import each_case

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

NAMES = st.sampled_from(["*", "a", "ab", "abc", "b", "*a", "hardcode", "hard"])
PRINCIPALS = st.sampled_from(["User:a", "User:b"])
OPERATIONS = st.sampled_from([each for each in Op if each > Op.ANY])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.9", "::1"])
ACLS = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:a", "User:b", "User:*"]),
    st.sampled_from(["*", "*", "10.0.0.1", "10.0.0.0/30", "0:0:0:0:0:0:0:1", "::/64"]),
    OPERATIONS,
    st.sampled_from([ALLOW, DENY]),
)
ACL_SETS = st.lists(ACLS, max_size=8)
QUESTIONS = st.tuples(
    PRINCIPALS, HOSTS, OPERATIONS | st.sampled_from([Op.DESCRIBE, Op.READ]), st.just(TOPIC), NAMES
)


def acl(name: str = "t", permission: AclPermissionType = ALLOW, **changed: Any) -> AclBinding:
    binding = AclBinding(TOPIC, name, LITERAL, "User:a", "*", Op.READ, permission)
    return binding._replace(**changed)


def cache(*acls: AclBinding, allows_without: bool = False) -> AclCache:
    made = AclCache()
    made.allows_without_acls = allows_without
    for each in acls:
        made.add(each)
    return made


def decided(made: AclCache, question: tuple[Any, ...]) -> bool:
    principal, host, *rest = question
    return made.decide(principal, parse_host(host), *rest).is_allowed


@settings(max_examples=200)
@given(ACL_SETS, st.booleans(), QUESTIONS)
def test_a_decision_is_that_of_the_model(
    acls: list[AclBinding], allows_without: bool, question: tuple[Any, ...]
) -> None:
    expected = naive_authorizer.decide(acls, allows_without, *question)
    assert decided(cache(*acls, allows_without=allows_without), question) == expected


@settings(max_examples=200)
@given(ACL_SETS, st.booleans(), QUESTIONS)
def test_a_decision_on_any_resource_is_that_of_the_model(
    acls: list[AclBinding], allows_without: bool, question: tuple[Any, ...]
) -> None:
    principal, host, operation, resource_type, _ = question
    expected = naive_authorizer.decide_on_any(acls, allows_without, *question[:4])
    made = cache(*acls, allows_without=allows_without)
    assert made.decide_on_any(principal, parse_host(host), operation, resource_type) == expected


def drawn_case(draw: random.Random) -> tuple[list[AclBinding], bool, tuple[Any, ...]]:
    """ACLs, the default, and a question, of so few words that rules meet."""
    names = ["*", "a", "ab", "*a"]
    operations = [Op.ALL, Op.READ, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS]
    acls = [
        AclBinding(
            TOPIC,
            draw.choice(names),
            draw.choice([LITERAL, PREFIXED]),
            draw.choice(["User:a", "User:b", "User:*"]),
            draw.choice(["*", "10.0.0.1", "10.0.0.0/30"]),
            draw.choice(operations),
            draw.choice([ALLOW, DENY]),
        )
        for _ in range(draw.randint(0, 4))
    ]
    question = (
        "User:a",
        draw.choice(["10.0.0.1", "10.0.0.9"]),
        draw.choice(operations),
        TOPIC,
        draw.choice(names),
    )
    return acls, draw.random() < 0.5, question


def test_each_planted_mistake_is_found() -> None:
    draw = random.Random(43)
    found = dict.fromkeys(naive_authorizer.MISTAKES, 0)
    for _ in range(3_000):
        acls, allows_without, question = drawn_case(draw)
        right = decided(cache(*acls, allows_without=allows_without), question)
        assert right == naive_authorizer.decide(acls, allows_without, *question)
        for mistaken in found:
            found[mistaken] += mistaken(acls, allows_without, *question) != right
    assert all(found.values()), found


@settings(max_examples=100)
@given(ACL_SETS, ACL_SETS, QUESTIONS)
def test_removed_acls_leave_nothing(
    kept: list[AclBinding], removed: list[AclBinding], question: tuple[Any, ...]
) -> None:
    made = cache(*kept, *removed)
    for each in removed:
        made.remove(each)
        made.remove(each)
    left = [each for each in dict.fromkeys(kept) if each not in removed]
    assert len(made) == len(left)
    assert all((each in made) == (each in left) for each in (*kept, *removed))
    assert decided(made, question) == naive_authorizer.decide(left, False, *question)
    everything = AclBindingFilter(
        AclResourceType.ANY, None, PatternType.ANY, None, None, Op.ANY, AclPermissionType.ANY
    )
    assert set(made.find(everything)) == set(left)
    made.clear()
    assert len(made) == 0
    assert not made.find(everything)
    assert not decided(made, question)


def test_the_rule_is_named() -> None:
    host = parse_host("10.0.0.1")
    deny = acl("secret", DENY)
    made = cache(acl(), deny)
    assert made.decide("User:a", host, Op.READ, TOPIC, "t").rule == acl()
    assert made.decide("User:a", host, Op.READ, TOPIC, "secret").rule == deny
    assert made.decide("User:b", host, Op.READ, TOPIC, "t").rule == DEFAULT_DENY
    assert cache(allows_without=True).decide("User:b", host, Op.READ, TOPIC, "t").rule == DEFAULT_ALLOW


def test_a_user_named_star_is_every_user_once() -> None:
    made = cache(acl(principal="User:*"))
    assert decided(made, ("User:*", "10.0.0.1", Op.READ, TOPIC, "t"))


def test_an_address_that_is_not_known_is_no_network() -> None:
    made = cache(acl(host="0.0.0.0/0"), acl("all"))
    assert not decided(made, ("User:a", "somewhere", Op.READ, TOPIC, "t"))
    assert decided(made, ("User:a", "somewhere", Op.READ, TOPIC, "all"))


def test_each_change_has_a_version_of_its_own() -> None:
    made = cache()
    versions = [made.version]
    made.add(acl())
    versions.append(made.version)
    made.remove(acl())
    versions.append(made.version)
    made.clear()
    versions.append(made.version)
    assert len(set(versions)) == 4
    made.remove(acl())
    assert made.version == versions[-1]


def test_a_host_that_is_none_changes_nothing() -> None:
    made = cache()
    with pytest.raises(InvalidAcl):
        made.add(acl(host="example.org"))
    assert len(made) == made.version == 0


def test_the_number_of_looks_does_not_grow_with_the_acls() -> None:
    """Ten thousand users' ACLs on the same topic: a decision looks at those of one."""
    made = cache(*[acl(principal=f"User:{n}", host=f"10.0.{n >> 8}.{n & 255}") for n in range(10_000)])
    of_type = made._by_type[TOPIC]
    looked_at = [each for by_principal in of_type.acls_about("t") for each in by_principal.get("User:7", {})]
    assert len(looked_at) == 1


@each_case(
    "acls, is_allowed",
    [
        ([], False),
        ([acl("t")], True),
        ([acl("t"), acl("u", DENY)], True),
        ([acl("t"), acl("t", DENY)], False),
        ([acl("t"), acl("*", DENY)], False),
        ([acl("*"), acl("t", DENY)], True),
        ([acl("*"), acl("hard", DENY, pattern_type=PREFIXED)], True),
        ([acl("tt"), acl("t", DENY, pattern_type=PREFIXED)], False),
        ([acl("t", pattern_type=PREFIXED), acl("tt", DENY, pattern_type=PREFIXED)], True),
        ([acl("t", operation=Op.WRITE)], False),
        ([acl("t", operation=Op.ALL)], True),
        ([acl("t", resource_type=GROUP)], False),
    ],
)
def test_an_operation_on_any_resource(acls: list[AclBinding], is_allowed: bool) -> None:
    made = cache(*acls)
    assert list(made) == acls
    assert made.decide_on_any("User:a", parse_host("10.0.0.1"), Op.READ, TOPIC) is is_allowed
