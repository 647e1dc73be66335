"""Settings from where they are written: a properties file, `--set key=value`, flags of the command line.

Owns: the order of these sources, references to values that are kept elsewhere, and telling which source is
wrong. Invariant: what a reference stands for is in no error and no warning. Does not: know what a setting may
be (`config.py` does).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import javaproperties

from broker.settings.addresses import Listener
from broker.settings.config import PROPERTIES, Settings, aliased, for_clients, from_texts
from broker.settings.config_providers import resolved
from broker.settings.properties import ConfigError, ConfigErrors


def load(
    properties_file: Path | None = None,
    assignments: Iterable[str] = (),
    flags: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from a properties file, then `key=value` assignments, then flags (by property name).

    Raises ConfigError naming key and value of all that is wrong, and the file if they are from there; OSError
    for a file that cannot be read.
    """
    warnings: list[str] = []
    assigned = aliased(_assigned(assignments), warnings)
    filed: dict[str, str] = {}
    if properties_file is not None:
        with open(properties_file, encoding="utf-8") as stream:
            filed = dict(javaproperties.load(stream))
    written: dict[str, str] = {}
    flagged = aliased(flags or {}, warnings)
    try:
        written |= aliased(filed, warnings)
        filed |= written
        written |= assigned
        texts = resolved(written, PROPERTIES.__contains__, os.environ)
        overridden = _overridden(texts) if "listeners" in flagged else None
        replaced = written.get("listeners")
        written |= flagged
        settings = from_texts(texts | flagged, filed.keys() - assigned.keys())
    except ConfigErrors as errors:
        raise ConfigErrors(
            [_as_written(each, written, filed, properties_file) for each in errors.errors]
        ) from None
    except ConfigError as error:
        raise _as_written(error, written, filed, properties_file) from None
    if overridden is not None and overridden != settings.listening():
        warnings.append(f"listeners={replaced} has no effect: --listen {flagged['listeners']} goes before it")
    return replace(settings, warnings=(*warnings, *settings.warnings))


def _as_written(
    error: ConfigError, texts: Mapping[str, str], filed: Mapping[str, str], file: Path | None
) -> ConfigError:
    """`error` with the file that its setting is from, if it is. `texts`: all of them as written."""
    key, value, problem = error.key, error.value, error.problem
    if "${" in texts.get(key, ""):
        value = texts[key]
    if key in filed and texts.get(key, filed[key]) == filed[key]:
        problem = f"{problem} (in {file})"
    return ConfigError(key, value, problem)


def _assigned(assignments: Iterable[str]) -> dict[str, str]:
    """What `--set` says. Raises ConfigError."""
    found = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError("--set", assignment, "not of the form key=value")
        found[key.strip()] = value
    return found


def _overridden(texts: Mapping[str, str]) -> list[Listener] | None:
    """The listeners that `--listen` goes before; None where none are set. Raises ConfigError as without it:
    it says where to listen, and not that what was to be encrypted may be in the clear."""
    names = ("listeners", "listener.security.protocol.map", "controller.listener.names")
    if "listeners" not in texts:
        return None
    known = [(name, *PROPERTIES[name]) for name in names if name in texts]
    values = {attribute: declared.parse(texts[name]) for name, attribute, declared in known}
    try:
        return for_clients(Settings(**values))
    except ConfigError as error:
        meant = "--listen does not change that; who means it sets listeners=PLAINTEXT://HOST:PORT"
        raise ConfigError(error.key, error.value, f"{error.problem}; {meant}") from None
