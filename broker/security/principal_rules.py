"""The rules that make a principal's name from the subject of a certificate (`ssl.principal.mapping.rules`).

Pure. The first rule whose pattern matches the whole subject counts; where none matches there is no name, and
the connection is closed, as in Kafka. Patterns are those of Java, which Python's are in all that such rules
use; a group in a replacement is `$1`. Source: Kafka's SslPrincipalMapper, KIP-371.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?))\s*(?:,\s*|$)"
)
_REPLACEMENT: Final = re.compile(r"\\(?P<literal>.)|\$(?P<group>[0-9])|\$\{(?P<name>\w+)\}")

_NAMED_GROUP: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
"""A named group as Java writes it."""


class InvalidRule(ValueError):
    """A rule that cannot be used; the text names it and the reason."""


@dataclass(frozen=True)
class Rule:
    """One rule; without a pattern it takes every subject as it is."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, subject: str) -> str | None:
        """The name; None if the rule does not match."""
        if self.pattern is None:
            return subject
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None
        name = _REPLACEMENT.sub(lambda part: _expand(match, part), self.replacement)
        return {"L": name.lower, "U": name.upper}.get(self.case, lambda: name)()


def parse_rules(text: str) -> tuple[Rule, ...]:
    """The rules of a setting. Raises InvalidRule."""
    text = text.strip() or DEFAULT
    rules: list[Rule] = []
    position = 0
    while position < len(text):
        parsed = _RULE.match(text, position)
        if parsed is None:
            form = "not of the form RULE:pattern/replacement/ with L or U behind it, or DEFAULT"
            raise InvalidRule(f"{text[position:]!r} is {form}")
        position = parsed.end()
        rules.append(_rule(parsed))
    return tuple(rules)


def _rule(parsed: re.Match[str]) -> Rule:
    if parsed["default"]:
        return Rule(None, "", "")
    try:
        pattern = re.compile(_NAMED_GROUP.sub(r"(?P<\1>", parsed["pattern"]))
    except (re.error, OverflowError, RecursionError) as error:  # the latter of huge numbers, of deep nesting
        raise InvalidRule(f"the pattern {parsed['pattern']!r} is not valid: {error}") from None
    for part in _REPLACEMENT.finditer(parsed["replacement"]):
        if part["group"] and int(part["group"]) > pattern.groups:
            raise InvalidRule(f"the pattern {parsed['pattern']!r} has no group {part['group']}")
        if part["name"] and part["name"] not in pattern.groupindex:
            raise InvalidRule(f"the pattern {parsed['pattern']!r} has no group {part['name']}")
    return Rule(pattern, parsed["replacement"], parsed["case"])


def _expand(match: re.Match[str], part: re.Match[str]) -> str:
    if part["literal"]:
        return part["literal"]
    return match[int(part["group"]) if part["group"] else part["name"]] or ""


def principal_name(rules: tuple[Rule, ...], subject: str) -> str | None:
    """The name of the first rule that matches; None if none does."""
    for rule in rules:
        name = rule.apply(subject)
        if name is not None:
            return name
    return None
