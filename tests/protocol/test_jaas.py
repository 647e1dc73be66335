"""The text of `sasl.jaas.config`."""

from __future__ import annotations

import pytest

from lockstep.protocol.jaas import JaasEntry, MalformedJaas, parse_jaas
from tests.support.cases import each_case


@each_case(
    ("text", "options"),
    [
        ('a.Module required user_alice="secret";', {"user_alice": "secret"}),
        ("a.Module required;", {}),
        ("a.Module REQUIRED\n  x='1'\n  y = 2\n;  ", {"x": "1", "y": "2"}),
        (r'a.Module required p="a\"b\\c;=";', {"p": 'a"b\\c;='}),
        ('a.Module optional "na me"="";', {"na me": ""}),
    ],
)
def test_one_login_module(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == JaasEntry("a.Module", options)


@each_case(
    ("text", "problem"),
    [
        ("", "not of the form"),
        ("a.Module required", "not of the form"),
        ("a.Module;", "not of the form"),
        ("a.Module needed x=1;", "the word behind a.Module is none of required"),
        ("a.Module required x;", "option 1 is not NAME=VALUE"),
        ("a.Module required x=1 y=;", "option 2 is not NAME=VALUE"),
        ("a.Module required x=1; b.Module required;", "option 2 is not NAME=VALUE, or a second module"),
        ("a.Module required = = =;", "option 1 is not"),
        ('a.Module required x="hush;', "a quote has no end"),
    ],
)
def test_a_text_of_another_form(text: str, problem: str) -> None:
    with pytest.raises(MalformedJaas, match=problem) as refused:
        parse_jaas(text)
    assert "hush" not in str(refused.value)
