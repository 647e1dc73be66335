"""Kafka-style properties: how one setting is declared, read from text and shown.

Owns: the value kinds (Kafka's ConfigDef types), bounds, and the error texts.
Does not: know which settings exist (`config.py`, `topic_config.py` do).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, TypeVar

T = TypeVar("T")

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
KIB = 1 << 10
MIB = 1 << 20
HOUR_MS = 3_600_000
REPLICAS_ARE_THE_GROUPS = (
    "Without effect, except that more than the number of nodes is rejected: partitions have the "
    "replicas of their log group."
)
"""The reason of each setting that counts replicas."""


class Kind(IntEnum):
    """Value types, numbered as DescribeConfigs reports them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_LARGEST = {Kind.INT: INT32_MAX, Kind.LONG: INT64_MAX, Kind.SHORT: 2**15 - 1}
_UNITS = frozenset({"bytes", "ms", "minutes", "hours"})
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)


class ConfigError(ValueError):
    """A setting that cannot be used; the text names key and value."""

    is_temporary = False
    """True if a later start with the same settings may work."""

    def __init__(self, key: str, value: str, problem: str) -> None:
        super().__init__(f"{key}={value}: {problem}")
        self.key = key
        self.value = value
        self.problem = problem


class UnusableFile(ConfigError):
    """A setting that names a file which is not there, cannot be read, or is not valid at this time."""

    is_temporary = True


class ConfigErrors(ConfigError):
    """Several settings that cannot be used, reported together; `key` is the first one's."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        first = errors[0]
        super().__init__(first.key, first.value, first.problem)
        self.errors = tuple(errors)
        self.is_temporary = all(each.is_temporary for each in errors)

    def __str__(self) -> str:
        return "; ".join(map(str, self.errors))


def raise_all(errors: Sequence[ConfigError]) -> None:
    """Raises what there is: one error as it is, several as ConfigErrors."""
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigErrors(errors)


@dataclass(frozen=True)
class Property:
    """One setting: its name as users write it, what it may be, and why it is there."""

    name: str
    kind: Kind
    default: object
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    is_internal: bool = False
    """Kafka describes such a configuration only where it is set."""
    unit: str = ""
    """The unit of a number; the end of the name (`.ms`, `.bytes`) has it where this is empty."""

    @property
    def unit_name(self) -> str:
        """The unit of the value; empty for what is no number."""
        last = self.name.rpartition(".")[2]
        return self.unit or (last if last in _UNITS else "")

    def parse(self, text: str) -> Any:
        """The value of `text`. Raises ConfigError."""
        value = self._convert(text.strip(), text)
        if self.minimum is not None and value < self.minimum:
            raise ConfigError(self.name, text, f"must be at least {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise ConfigError(self.name, text, f"must be at most {self.maximum}")
        if self.choices:
            for item in value if self.kind is Kind.LIST else (value,):
                if self.show(item) not in self.choices:
                    choices = ", ".join(each or "nothing" for each in self.choices)
                    raise ConfigError(self.name, text, f"must be one of {choices}")
        return value

    def _convert(self, text: str, original: str) -> Any:
        if self.kind is Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ConfigError(self.name, original, "must be true or false")
            return text.lower() == "true"
        if self.kind is Kind.DOUBLE:
            try:
                real = float(text)
            except ValueError:
                raise ConfigError(self.name, original, "not a number") from None
            if not math.isfinite(real):
                raise ConfigError(self.name, original, "not a finite number")
            return real
        if self.kind is Kind.LIST:
            return tuple(dict.fromkeys(item.strip() for item in text.split(","))) if text else ()
        if self.kind in (Kind.STRING, Kind.CLASS, Kind.PASSWORD):
            return text
        if not _WHOLE_NUMBER.fullmatch(text) or len(text) > 20:
            raise ConfigError(self.name, original, "not a whole number")
        number = int(text)
        largest = _LARGEST[self.kind]
        if not -largest - 1 <= number <= largest:
            raise ConfigError(self.name, original, f"does not fit a Kafka {self.kind.name.lower()}")
        return number

    def show(self, value: object) -> str | None:
        """`value` as text, the way Kafka writes it."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(str(item) for item in value)
        if isinstance(value, float):
            return str(value).replace("e+", "E")
        return str(value)


def setting(
    name: str,
    kind: Kind,
    default: T,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    is_internal: bool = False,
    unit: str = "",
) -> T:
    """A dataclass field that is also a property; the dataclass's repr has no secrets."""
    declared = Property(name, kind, default, doc, minimum, maximum, choices, is_internal, unit)
    return field(default=default, repr=kind is not Kind.PASSWORD, metadata={"property": declared})


def properties_of(cls: type) -> Mapping[str, tuple[str, Property]]:
    """Property name -> (field name, property) of a dataclass made with `setting`."""
    return {
        item.metadata["property"].name: (item.name, item.metadata["property"])
        for item in fields(cls)
        if "property" in item.metadata
    }
