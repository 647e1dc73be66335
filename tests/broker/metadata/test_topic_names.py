"""What a topic may be called: each rule at its border."""

from __future__ import annotations

import pytest

from lockstep.broker.metadata.topic_names import check_name
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from tests.support.cases import each_case


@each_case("name", ["a", "A.b_c-9", "x" * 249, "...", "__mine"])
def test_names(name: str) -> None:
    check_name(name)


@each_case(
    ("name", "words"),
    [
        ("", "the empty string"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"'{'x' * 32}...' is longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than"),
        ("a\n", "contains one or more characters other than"),
        ("ä", "contains one or more characters other than"),
        ("٣", "contains one or more characters other than"),
    ],
)
def test_names_that_are_refused(name: str, words: str) -> None:
    with pytest.raises(RequestError) as refused:
        check_name(name)
    assert refused.value.error == ErrorCode.INVALID_TOPIC_EXCEPTION
    said = refused.value.message
    assert said.startswith("Topic name is invalid: ") and words in said
