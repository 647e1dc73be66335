"""The authorization campaign: Lockstep against recorded outcomes of Apache Kafka, the mistakes that it finds,
and what counts as equal."""

from __future__ import annotations

import random
from typing import Any

import pytest

from compat_tests.java_driver import run_tool
from compat_tests.kafka_jars import SHORT_LIVED, ToolchainMissing, skip_or_fail
from compat_tests.targets import KafkaTarget, LockstepTarget
from lockstep.broker.authorization.acl import AclBinding, parse_host
from lockstep.broker.authorization.acl_cache import AclCache
from lockstep.protocol.acl_codes import CLUSTER_NAME
from lockstep.protocol.acl_codes import AclOperation as Op
from lockstep.protocol.acl_codes import AclResourceType as Type
from tests.campaigns import authorization, evidence
from tests.campaigns.authorization import Campaign, draw_acls, questions
from tests.campaigns.authorization_brokers import AUTHORIZER, CLIENTS, DENY
from tests.campaigns.authorization_requests import ROWS, Draw, outcome
from tests.campaigns.authorization_sabotage import PLANTS
from tests.support.cases import each_case

SETS = 200
SETS_OF_A_PLANT = 100
RARE = "any-resource-is-never-denied"
"""A mistake that too few of the recorded requests are about."""


@pytest.mark.timeout(900)
@each_case("everyone", [False, True])
def test_ten_thousand_requests_are_answered_as_apache_kafka_did(everyone: bool) -> None:
    asked, differences = authorization.against_recorded(everyone, SETS)
    assert asked == 5_000
    assert not differences, "\n".join(each.text for each in differences[:5])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", [each for each in PLANTS if each not in ("nothing-is-denied", RARE)])
def test_each_planted_mistake_is_found(plant: str) -> None:
    _, differences = authorization.against_recorded(True, SETS_OF_A_PLANT, plant)
    assert differences


@pytest.mark.timeout(900)
def test_each_row_finds_that_nothing_is_asked() -> None:
    """A request whose API, or a part of it, does not ask the authorizer."""
    _, differences = authorization.against_recorded(False, SETS, "nothing-is-denied")
    assert {each.row for each in differences} == {each.__name__ for each in ROWS}


def test_a_hundred_thousand_pairs_find_the_mistake_that_ten_thousand_may_not() -> None:
    """A producer without an id, where a DENY covers each topic that it may write to."""
    _, _, mistaken = PLANTS[RARE]
    host, found = parse_host(CLIENTS[0]), 0
    for number in range(100_000 // authorization.REQUESTS_OF_A_SET):
        acls, asked = questions(7, number)
        rows = [ROWS[row](Draw(words, {})) for source, row, words in asked if source == CLIENTS[0]]
        if not any(api == "init_producer_id" and not each["transactional_id"] for api, _, each in rows):
            continue
        cache = AclCache()
        for each in acls:
            cache.add(AclBinding.of(list(each.values())))
        client = "User:ANONYMOUS", host
        if not cache.decide(*client, Op.IDEMPOTENT_WRITE, Type.CLUSTER, CLUSTER_NAME).is_allowed:
            question = *client, Op.WRITE, Type.TOPIC
            found += cache.decide_on_any(*question) != mistaken(cache, *question)
    assert found


def test_a_run_of_this_source_goes_on_where_it_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Campaign(7)
    first.asked["fetch"], first.denials, first.asked_again, first.seconds = 3, 2, 1, 4.0
    run = first.figures() | {"next_set": 40, "done": False, "source": evidence.source_digest()}
    runs: list[dict[str, Any]] = []
    monkeypatch.setattr(evidence, "load_runs", lambda name: runs)
    assert authorization.interrupted_run() is None
    for other in ({"source": "elsewhere"}, {"done": True}):
        runs.append(run | other)
        assert authorization.interrupted_run() is None
    runs.append(run)
    assert authorization.interrupted_run() == run
    second = Campaign(8)
    second.continue_run(run)
    assert second.figures() == first.figures()


def test_the_same_seed_makes_the_same_requests() -> None:
    assert questions(7, 3) == questions(7, 3) != questions(8, 3)
    ids = {"ta": bytes([1] * 16)}
    for number, row in enumerate(ROWS):
        assert row(Draw(f"{number}", ids)) == row(Draw(f"{number}", ids))


def test_no_acl_denies_the_administrator_the_cluster() -> None:
    draw = random.Random(1)
    for _ in range(2_000):
        for acl in draw_acls(draw):
            if acl["resource_type"] == 4 and acl["permission_type"] == DENY:
                assert acl["host"] in ("127.0.0.2", "127.0.0.3", "127.0.0.2/31", "127.0.0.3/32")


@each_case(
    "other, is_equal",
    [
        ({"error_code": 0}, False),
        ({"error_code": 3}, False),
        ({"name": "u"}, False),
        ({"topic_authorized_operations": 7}, False),
        ({"partitions": [{"partition_index": 0, "error_code": 29}]}, False),
        ({"leader_id": 5}, True),
    ],
)
def test_what_counts_as_equal(other: dict[str, Any], is_equal: bool) -> None:
    topic: dict[str, Any] = {"name": "t", "error_code": 29, "topic_authorized_operations": 5}
    topic["partitions"] = [{"partition_index": 0, "error_code": 0}]
    one, two = (outcome("metadata", {"topics": [each]}, {}) for each in (topic, topic | other))
    assert (one == two) is is_equal


def test_an_element_that_is_left_out_counts() -> None:
    both = {"error_code": 0, "groups": [{"group_id": "ga"}, {"group_id": "gb"}]}
    one = {"error_code": 0, "groups": [{"group_id": "gb"}]}
    assert outcome("list_groups", both, {}) != outcome("list_groups", one, {})


ACLS = "org.apache.kafka.tools.AclCommand"
COMMANDS = (
    ("--add", "--allow-principal", "User:a", "--producer", "--topic", "t", "--transactional-id", "x"),
    ("--add", "--allow-principal", "User:a", "--consumer", "--topic", "t-", "--group", "g"),
    ("--add", "--deny-principal", "User:*", "--deny-host", "10.0.0.0/8", "--operation", "All", "--cluster"),
    (
        "--add", "--allow-principal", "User:b", "--operation", "Read", "--topic", "t",
        "--resource-pattern-type", "prefixed",
    ),
    ("--list",),
    ("--list", "--topic", "t-1", "--resource-pattern-type", "match"),
    ("--list", "--principal", "User:a"),
    ("--remove", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t-", "--force"),
    ("--remove", "--group", "g", "--force"),
    ("--add", "--allow-principal", "nobody", "--operation", "Read", "--topic", "t"),
    ("--list",),
)  # fmt: skip


@pytest.mark.timeout(900)
def test_kafka_acls_prints_the_same() -> None:
    """Kafka's own tool, unchanged: the same lines from both brokers, in whatever order."""
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    try:
        targets = [LockstepTarget(settings), KafkaTarget(settings, heap="256M", jvm=SHORT_LIVED)]
    except ToolchainMissing as missing:
        skip_or_fail(str(missing))
    printed = []
    for target in targets:
        with target as broker:
            results = [run_tool(ACLS, ["--bootstrap-server", broker.bootstrap, *each]) for each in COMMANDS]
        printed.append([(each.status, sorted(each.stdout.split("\n"))) for each in results])
    for command, ours, kafkas in zip(COMMANDS, *printed, strict=True):
        assert ours == kafkas, command
