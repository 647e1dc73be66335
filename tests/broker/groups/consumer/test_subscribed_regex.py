"""Regular expressions of subscriptions: RE2's syntax, whole names, when they are evaluated, the records."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import pytest

from lockstep.broker.groups.consumer import subscribed_regex
from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup
from lockstep.broker.groups.consumer.consumer_group_records import (
    ConsumerGroupMember,
    GroupEpoch,
    ResolvedRegex,
    group_epoch_record,
    member_record,
    regex_record,
)
from lockstep.broker.groups.consumer.subscribed_regex import (
    check_regex,
    is_refresh_due,
    match_in_steps,
    match_names,
)
from lockstep.broker.groups.consumer.subscribed_topics import metadata_hash
from lockstep.broker.groups.group_records import Record
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from tests.broker.groups.consumer.fakes import FakeTopics
from tests.broker.groups.consumer.replayed_group import group_of, replay
from tests.support.cases import each_case

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS
NEVER_MS = -(1 << 62)


def group(
    regexes: tuple[str, ...],
    resolved: Mapping[str, ResolvedRegex] | None = None,
    epoch: GroupEpoch | None = None,
    names: tuple[str, ...] = (),
) -> ConsumerGroup:
    """A group of one member for each expression, and one for the names."""
    members = [ConsumerGroupMember(f"m{regex}", regex=regex) for regex in regexes]
    members += [ConsumerGroupMember("named", topics=names)] if names else []
    return group_of(
        *(member_record("g", each) for each in members),
        *(regex_record("g", regex, found) for regex, found in (resolved or {}).items()),
        group_epoch_record("g", epoch or GroupEpoch(2, 0)),
    )


# --- syntax and matches -------------------------------------------------------------------------------------


@each_case("regex", ["t", ".*", "(a|b)+", r"\d{3}", "(?i)T", "[[:alpha:]]", "é"])
def test_expressions_of_re2(regex: str) -> None:
    check_regex(regex)


@each_case(
    ("regex", "problem"),
    [
        ("(", "missing ): ("),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("(?=a)", "invalid perl operator: (?="),  # Java has it, RE2 does not
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("[é-a]", "invalid character class range: é-a"),
        ("(?:x{1000}){1000}", "invalid repetition size: {1000}"),
        ("x" * 100_000, "pattern too large - compile failed"),
    ],
)
def test_row_2_another_text_is_rejected(regex: str, problem: str) -> None:
    for _ in range(2):  # a failure is not kept
        with pytest.raises(RequestError) as raised:
            check_regex(regex)
        assert raised.value.error is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert raised.value.message == (
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {problem}."
        )


def test_row_2_an_expression_matches_whole_names_in_order_internal_ones_too() -> None:
    names = ["t4", "4", "__consumer_offsets", "a4b"]
    assert match_names("4", names) == ("4",)
    assert match_names(".*4", names) == ("4", "t4")
    assert match_names(".*", names) == ("4", "__consumer_offsets", "a4b", "t4")
    assert match_names("t|t4", names) == ("t4",)
    assert match_names("x", names) == ()


def test_an_expression_that_a_record_has_and_re2_does_not_take_matches_nothing() -> None:
    assert match_names("(", ["(", "t"]) == ()


# --- when ---------------------------------------------------------------------------------------------------


def due(
    found: ConsumerGroup,
    now_ms: int = NOW_MS,
    refreshed_ms: int = NEVER_MS,
    has_new_regex: bool = False,
    has_new_topics: bool = False,
) -> bool:
    return is_refresh_due(
        found,
        now_ms,
        refreshed_ms,
        12 * HOUR_MS,
        has_new_regex=has_new_regex,
        has_new_topics=has_new_topics,
    )


def test_a_group_without_expressions_is_not_due() -> None:
    assert not due(group(()), has_new_topics=True)
    assert due(group(()), has_new_regex=True)


def test_an_expression_does_not_wait_where_none_is_resolved() -> None:
    assert due(group(("t",)), refreshed_ms=NOW_MS)
    assert due(group(()), refreshed_ms=NOW_MS, has_new_regex=True)


@each_case("by_record", [False, True])
def test_row_2_nothing_is_evaluated_again_within_10_s(by_record: bool) -> None:
    """The last evaluation is the later one of this node's and of what the records have."""
    last_ms = NOW_MS - 10_000
    times = (last_ms, NEVER_MS) if by_record else (0, last_ms)
    found = group(("t", "u"), {"t": ResolvedRegex(("t",), 1, times[0])})
    assert not due(found, NOW_MS, times[1], has_new_regex=True, has_new_topics=True)
    assert due(found, NOW_MS + 1, times[1], has_new_regex=True)


def test_row_2_after_10_s_new_topics_and_new_expressions_are_due() -> None:
    last = {"t": ResolvedRegex(("t",), 1, NOW_MS - 10_001)}
    assert not due(group(("t",), last))
    assert due(group(("t",), last), has_new_topics=True)
    assert due(group(("t",), last), has_new_regex=True)
    assert due(group(("t", "u"), last))  # u is not resolved


def test_an_evaluation_is_due_after_the_refresh_interval() -> None:
    found = group(("t",), {"t": ResolvedRegex(("t",), 1, NOW_MS)})
    assert not due(found, NOW_MS + 12 * HOUR_MS)
    assert due(found, NOW_MS + 12 * HOUR_MS + 1)
    assert not due(found, NOW_MS + 12 * HOUR_MS + 1, refreshed_ms=NOW_MS + 1)


# --- the records of an evaluation ---------------------------------------------------------------------------


def everything(name: str) -> bool:
    return True


def run(steps: Generator[None, None, dict[str, tuple[str, ...]]]) -> tuple[dict[str, tuple[str, ...]], int]:
    """The matches, and the number of steps before the last."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, count
        count += 1


def refresh(
    found: ConsumerGroup,
    topics: FakeTopics,
    may_describe: Callable[[str], bool],
    version: int,
    now_ms: int,
    regexes: Sequence[str] | None = None,
) -> list[Record]:
    """The records of an evaluation of these expressions, or of all."""
    names = [each.name for each in topics.topics()]
    chosen = list(found.regex_members) if regexes is None else regexes
    matches, _ = run(match_in_steps(chosen, names, may_describe))
    return subscribed_regex.refresh(found, topics, matches, version, now_ms)


def test_names_are_matched_in_steps() -> None:
    names = [f"t{number}" for number in reversed(range(2_500))]
    matches, steps = run(match_in_steps([".*", "t1", "x"], names, everything))
    assert matches == {".*": tuple(sorted(names)), "t1": ("t1",), "x": ()}
    assert steps == 6  # two for each expression: what is left of one counts for the next
    matches, steps = run(match_in_steps([f"t{number}" for number in range(100)], names[:100], everything))
    assert len(matches) == 100
    assert steps == 20  # five expressions each, which cost as much to compile as to match


def test_an_expression_that_came_during_the_evaluation_stays_as_it_is() -> None:
    topics = FakeTopics(t=1, u=1, v=1)
    old = {"u": ResolvedRegex(("u",), 1, 1)}
    found = group(("t", "u", "v"), old, GroupEpoch(2, 0))
    assert refresh(found, topics, everything, 7, NOW_MS, ["t", "gone"]) == [
        regex_record("g", "t", ResolvedRegex(("t",), 7, NOW_MS)),
        group_epoch_record("g", GroupEpoch(3, metadata_hash(["t", "u"], topics))),
    ]


def test_all_expressions_are_resolved_and_the_epoch_rises_once() -> None:
    topics = FakeTopics(t1=1, t2=1, u=1)
    found = group(("t.*", "u", "v"))
    digest = metadata_hash(["t1", "t2", "u"], topics)
    assert refresh(found, topics, everything, 7, NOW_MS) == [
        regex_record("g", "t.*", ResolvedRegex(("t1", "t2"), 7, NOW_MS)),
        regex_record("g", "u", ResolvedRegex(("u",), 7, NOW_MS)),
        regex_record("g", "v", ResolvedRegex((), 7, NOW_MS)),
        group_epoch_record("g", GroupEpoch(3, digest)),
    ]


def test_the_hash_is_of_the_names_too() -> None:
    topics = FakeTopics(t=1, u=1)
    records = refresh(group(("t",), names=("u",)), topics, everything, 7, NOW_MS)
    assert records[-1] == group_epoch_record("g", GroupEpoch(3, metadata_hash(["t", "u"], topics)))


def test_an_expression_that_matches_nothing_is_written_without_an_epoch() -> None:
    records = refresh(group(("x",)), FakeTopics(t=1), everything, 7, NOW_MS)
    assert records == [regex_record("g", "x", ResolvedRegex((), 7, NOW_MS))]


def test_an_evaluation_without_news_writes_nothing() -> None:
    topics = FakeTopics(t=1, u=1)
    found = group(("t", "x"))
    replay(found, refresh(found, topics, everything, 7, NOW_MS))
    assert refresh(found, topics, everything, 8, NOW_MS + HOUR_MS) == []


def test_row_2_a_new_topic_is_written_for_its_expressions_and_raises_the_epoch() -> None:
    topics = FakeTopics(t1=1, u=1)
    found = group(("t.*", "u"))
    replay(found, refresh(found, topics, everything, 7, NOW_MS))
    topics.create("t2", 1)
    assert refresh(found, topics, everything, 8, NOW_MS + HOUR_MS) == [
        regex_record("g", "t.*", ResolvedRegex(("t1", "t2"), 8, NOW_MS + HOUR_MS)),
        group_epoch_record("g", GroupEpoch(4, metadata_hash(["t1", "t2", "u"], topics))),
    ]


def test_the_epoch_rises_where_members_get_other_topics_of_the_same_group() -> None:
    topics = FakeTopics(t=1, u=1)
    digest = metadata_hash(["t", "u"], topics)
    one = {"t": ResolvedRegex((), 1, 1), "t|u": ResolvedRegex(("t", "u"), 1, 1)}
    assert refresh(group(("t", "t|u"), one, GroupEpoch(2, digest)), topics, everything, 7, NOW_MS) == [
        regex_record("g", "t", ResolvedRegex(("t",), 7, NOW_MS)),
        group_epoch_record("g", GroupEpoch(3, digest)),
    ]


def test_the_epoch_rises_where_a_topic_of_the_same_name_has_more_partitions() -> None:
    topics = FakeTopics(t=1)
    found = group(("t",))
    replay(found, refresh(found, topics, everything, 7, NOW_MS))
    topics.grow("t", 2)
    assert refresh(found, topics, everything, 8, NOW_MS) == [
        group_epoch_record("g", GroupEpoch(4, metadata_hash(["t"], topics)))
    ]


def test_only_topics_that_may_be_described_match_and_each_is_asked_for_once() -> None:
    topics = FakeTopics(t1=1, t2=1, u=1)
    asked: list[str] = []

    def may_describe(name: str) -> bool:
        asked.append(name)
        return name == "t1"

    records = refresh(group((".*", "t.*")), topics, may_describe, 7, NOW_MS)
    assert asked == ["t1", "t2", "u"]  # of two expressions
    assert records == [
        regex_record("g", ".*", ResolvedRegex(("t1",), 7, NOW_MS)),
        regex_record("g", "t.*", ResolvedRegex(("t1",), 7, NOW_MS)),
        group_epoch_record("g", GroupEpoch(3, metadata_hash(["t1"], topics))),
    ]
