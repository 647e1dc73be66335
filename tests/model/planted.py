"""What the tables of runs are made of: constants that are changed, and mistakes that must break a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.model.tlc import Configuration


@dataclass(frozen=True, slots=True)
class PlantedMistake:
    """A mistake, the bounds in which it shows, and the rules of which one must break."""

    configuration: Configuration
    breaks: tuple[str, ...]


def planted(configuration: Configuration, breaks: tuple[str, ...]) -> PlantedMistake:
    """Only the rules that it is against are checked, so that each is seen to fail for its own reason."""
    return PlantedMistake(
        replace(
            configuration,
            invariants=[rule for rule in configuration.invariants if rule in breaks],
            properties=[rule for rule in configuration.properties if rule in breaks],
        ),
        breaks,
    )


def change(constants: dict[str, str], changed: Mapping[str, object]) -> None:
    """Constants of a module, as texts of TLA+. Raises KeyError where the module has no such constant."""
    for name, value in changed.items():
        if name not in constants:
            raise KeyError(name)
        constants[name] = str(value).upper() if isinstance(value, bool) else str(value)
