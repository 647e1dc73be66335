"""The text of `sasl.jaas.config`: the class of a login module, and its options.

Pure. Source: Kafka's JaasConfig, which reads the same form: `CLASS required NAME="VALUE" ... ;`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(
    r"""\s*(?:"(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>(?:\\.|[^'\\])*)'|(?P<mark>[=;])|(?P<word>[^\s"'=;]+))"""
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


class MalformedJaas(ValueError):
    """A text that is no JAAS configuration; the error has the position, without showing a value."""


@dataclass(frozen=True)
class JaasEntry:
    """One login module."""

    module: str
    options: Mapping[str, str] = field(repr=False)
    """Passwords are among them."""


def parse_jaas(text: str) -> JaasEntry:
    """The one login module of a text. Raises MalformedJaas."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise MalformedJaas("not of the form CLASS required NAME=VALUE ... ;")
    (module, _), (flag, _), *rest = tokens[:-1]
    if flag.lower() not in _FLAGS:
        raise MalformedJaas(f"the word behind {module} is none of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    for at in range(0, len(rest), 3):
        part = rest[at : at + 3]
        if len(part) < 3 or part[1] != ("=", True) or part[0][1] or part[2][1]:
            raise MalformedJaas(f"option {at // 3 + 1} is not NAME=VALUE, or a second module follows")
        options[part[0][0]] = part[2][0]
    return JaasEntry(module, options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """The words, and whether each is a mark: `=` or `;` without quotes."""
    found: list[tuple[str, bool]] = []
    position, text = 0, text.rstrip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise MalformedJaas("a quote has no end")
        position = token.end()
        quoted = token["double"] if token["double"] is not None else token["single"]
        if quoted is not None:
            found.append((_ESCAPE.sub(r"\1", quoted), False))
        else:
            found.append((token["word"] or token["mark"], token["mark"] is not None))
    return found
