"""Patterns of transactional ids: as Python's own matcher where both may be asked, and never slow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.transactions import id_pattern as module
from lockstep.broker.transactions.id_pattern import IdPattern, InvalidPattern
from tests.support.cases import each_case

PATTERNS = [
    "", "a", "abc", "a|b|", "a*", "a+?", "a?b", "(ab)*", "(a*)*", "(a|ab)(c|bcd)", "a{2}", "a{2,}",
    "a{0,2}b", "a{1,3}?", ".", ".*", "(?s:.)*", "(?s).*", "[abc]+", "[^abc]", "[a-c]x?", r"[\d_]+", r"\d+\D",
    r"\w\W", r"\s", r"[\S]", "^a$", "^", "$", "a^", "a$b", r"\Aab", "(?i)AbC", "(?i:A)b", "(?-i:a)",
    "(?i)[A-C]+", "(?i)[^a]", "(?i)[^ab]", "[^a]*", "(?m)^a$", "(?m)a$\n^b", r"\bab\b", r"a\Bb", r"\B-\B",
    "(?P<name>a)b", "(?:a|b){2}", "a.c", r"\.", "x*y*z*", "[^-]+-[0-9]{1,3}",
]  # fmt: skip
TEXTS = [
    "", "a", "b", "ab", "abc", "ABC", "aB", "aa", "aaa", "aab", "a\n", "\n", "a\nb", "abcd", "_", "7", "7x",
    "x", "a.c", ".", "a b", " ", "-", "xyz", "app-17", "ac", "abab",
]  # fmt: skip


def theirs(pattern: str) -> re.Pattern[str]:
    """Python's own; its "$" may stand before a last end of line, RE2's may not."""
    return re.compile(pattern if "(?m)" in pattern else pattern.replace("$", r"\Z"), re.ASCII)


@each_case("pattern", PATTERNS)
def test_it_is_as_pythons_own(pattern: str) -> None:
    ours = IdPattern(pattern)
    for text in TEXTS:
        assert ours.matches(text) == (theirs(pattern).fullmatch(text) is not None), text


@given(st.sampled_from(PATTERNS), st.text("abcxyz-7_\n", max_size=8))
def test_any_text(pattern: str, text: str) -> None:
    assert IdPattern(pattern).matches(text) == (theirs(pattern).fullmatch(text) is not None)


@each_case(
    "pattern",
    [
        "(", "[a", "a**", "*a", "(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", "a{2,1}", "a{1001}", "a{1001,}", "a*+",
        "(?>a)", "[[:alpha:]]", "(" * 20_000, "(a{100}){100}", r"a\Z", "(a)?(?(1)b)",
    ],
)  # fmt: skip
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        IdPattern(pattern)


def test_it_is_never_slow() -> None:
    began = time.perf_counter()
    assert not IdPattern("(a+)+b").matches("a" * 500)
    assert not IdPattern("(.*)*(.*)*x").matches("a" * 500)
    assert time.perf_counter() - began < 5


def test_its_cost_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STEPS", 100)
    pattern = IdPattern("a*")
    with pytest.raises(InvalidPattern):
        for _ in range(100):
            pattern.matches("aaa")


@each_case(("pattern", "text"), [("((((){1000}){1000}){1000}){1000}", ""), ("((a{0}){1000}){1000}b", "b")])
def test_nothing_is_repeated_at_no_cost(pattern: str, text: str) -> None:
    assert IdPattern(pattern).matches(text)


def test_what_takes_long_to_compile_is_refused() -> None:
    with pytest.raises(InvalidPattern):
        IdPattern(f"[{''.join(map(chr, range(0x4E00, 0x4E00 + 5000)))}]{{1000}}")
