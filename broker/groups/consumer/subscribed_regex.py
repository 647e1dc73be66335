"""Subscriptions by a regular expression, which the broker evaluates (KIP-848).

Pure. Owns: RE2's syntax, by Google's own library, whose time grows with the length of a name only; when a
group's expressions are evaluated again; the records of that. Invariants: an expression matches whole names,
internal topics included, as in Kafka; only topics that the requesting client may describe match; all
expressions of a group are evaluated together, so that new topics cause one rebalance, and in steps. Source:
Kafka's TopicRegexResolver, GroupMetadataManager.maybeUpdateRegularExpressions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import re2

from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup, subscribed_names
from lockstep.broker.groups.consumer.consumer_group_records import (
    GroupEpoch,
    ResolvedRegex,
    group_epoch_record,
    regex_record,
)
from lockstep.broker.groups.consumer.subscribed_topics import TopicDescriber, metadata_hash
from lockstep.broker.groups.group_records import Record
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode

MIN_REFRESH_INTERVAL_MS: Final = 10_000
"""The least time between two evaluations of a group's expressions."""
MAX_CACHED_REGEXES: Final = 100
MAX_MEMORY_BYTES: Final = 1 << 20
"""Of one compiled expression."""
MATCHES_AT_ONCE: Final = 1_000
"""Names that are matched before others are served: some milliseconds."""
COMPILE_COST: Final = 100
"""The cost of compiling an expression, in matches."""


def check_regex(regex: str) -> None:
    """Rejects a text that is no regular expression of RE2. Raises RequestError."""
    try:
        _compile_regex(regex)
    except re2.error as error:
        problem = error.args[0].decode(errors="replace")
        raise RequestError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {problem}.",
        ) from None


@lru_cache(MAX_CACHED_REGEXES)
def _compile_regex(regex: str) -> Any:
    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.log_errors = False
    return re2.compile(regex, options)


def match_names(regex: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that an expression matches as a whole, in order; none for an invalid one."""
    try:
        compiled = _compile_regex(regex)
    except re2.error:
        return ()
    return tuple(sorted(each for each in names if compiled.fullmatch(each) is not None))


def is_refresh_due(
    group: ConsumerGroup,
    now_ms: int,
    refreshed_ms: int,
    interval_ms: int,
    *,
    has_new_regex: bool,
    has_new_topics: bool,
) -> bool:
    """Returns whether the group's expressions are to be evaluated again.

    Args: refreshed_ms: when this node evaluated them last; the records have the time of any node.
        While none is resolved an evaluation does not wait for the interval.
    """
    if not has_new_regex and not group.regex_members:
        return False
    last_ms = max((refreshed_ms, *(each.time_ms for each in group.regexes.values())))
    if group.regexes and now_ms <= last_ms + MIN_REFRESH_INTERVAL_MS:
        return False
    is_unresolved = has_new_regex or any(each not in group.regexes for each in group.regex_members)
    return is_unresolved or has_new_topics or now_ms > last_ms + interval_ms


def match_in_steps(
    regexes: Iterable[str], names: Sequence[str], may_describe: Callable[[str], bool]
) -> Generator[None, None, dict[str, tuple[str, ...]]]:
    """Matches each expression with all names, returns the matches; yields where others are to be served."""
    allowed = _DescribableTopics(may_describe)
    matches: dict[str, tuple[str, ...]] = {}
    count = 0
    for regex in regexes:
        found: list[str] = []
        for first in range(0, len(names), MATCHES_AT_ONCE):
            some = names[first : first + MATCHES_AT_ONCE]
            found += filter(allowed, match_names(regex, some))
            count += COMPILE_COST + len(some)
            if count >= MATCHES_AT_ONCE:
                count = 0
                yield
        matches[regex] = tuple(sorted(found))
    return matches


def refresh(
    group: ConsumerGroup,
    topics: TopicDescriber,
    matches: Mapping[str, tuple[str, ...]],
    version: int,
    now_ms: int,
) -> list[Record]:
    """The records of an evaluation; the group epoch rises if that changes the topics.

    Args: matches: by expression; one that a member has subscribed to since stays as it is.
    """
    resolved = {
        regex: ResolvedRegex(matches[regex], version, now_ms)
        for regex in group.regex_members
        if regex in matches
    }
    records = [
        regex_record(group.group_id, regex, found)
        for regex, found in resolved.items()
        if regex not in group.regexes or found.topics != group.regexes[regex].topics
    ]
    is_changed = any(
        found.topics != group.regexes.get(regex, ResolvedRegex()).topics for regex, found in resolved.items()
    )
    names = subscribed_names(group.topic_members, group.regex_members, {**group.regexes, **resolved})
    digest = metadata_hash(names, topics)
    if is_changed or digest != group.epoch.metadata_hash:
        records.append(group_epoch_record(group.group_id, GroupEpoch(group.group_epoch + 1, digest)))
    return records


class _DescribableTopics:
    """Calls `may_describe` once for each name."""

    __slots__ = ("_by_name", "_may_describe")

    def __init__(self, may_describe: Callable[[str], bool]) -> None:
        self._may_describe = may_describe
        self._by_name: dict[str, bool] = {}

    def __call__(self, name: str) -> bool:
        is_allowed = self._by_name.get(name)
        if is_allowed is None:
            is_allowed = self._by_name[name] = self._may_describe(name)
        return is_allowed
