"""Loads the settings from a properties file, `--set key=value` and the flags of the command line.

Owns: the precedence of these sources, resolving `${provider:path:key}` references, and naming the file of a
wrong setting. Invariant: no error and no warning contains the value of a reference. Does not: check values
(`config.py` does).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import javaproperties

from lockstep.broker.settings.addresses import Listener
from lockstep.broker.settings.config import PLAINTEXT, PROPERTIES, Settings, for_clients
from lockstep.broker.settings.config_providers import UnresolvedReferences, resolve_references
from lockstep.broker.settings.properties import ConfigError, ConfigErrors, UnusableFile, raise_all
from lockstep.broker.settings.security_settings import split_listener_name
from lockstep.broker.settings.settings_reader import from_texts, resolve_aliases


def load(
    properties_file: Path | None = None,
    assignments: Iterable[str] = (),
    flags: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from a properties file, then `key=value` assignments, then flags (by property name).

    Raises ConfigError that names each wrong key and value, with the file for those from it; OSError if the
    file cannot be read.
    """
    warnings: list[str] = []
    from_set = resolve_aliases(_parse_assignments(assignments), warnings)
    from_file: dict[str, str] = {}
    if properties_file is not None:
        with open(properties_file, encoding="utf-8") as stream:
            try:
                from_file = dict(javaproperties.load(stream))
            except javaproperties.InvalidUEscapeError as error:
                raise ConfigError("--config", str(properties_file), str(error).lower()) from None
    written: dict[str, str] = {}
    from_flags = resolve_aliases(flags or {}, warnings)
    try:
        written |= resolve_aliases(from_file, warnings)
        from_file |= written
        written |= from_set
        unresolved: Sequence[ConfigError] = ()
        try:
            texts = resolve_references(written, _has_effect, os.environ)
        except UnresolvedReferences as references:
            texts, unresolved = references.found, references.errors
        overridden_listeners = (
            _overridden_listeners(texts, from_flags["listeners"])
            if "listeners" in from_flags and not unresolved
            else None
        )
        replaced_listeners = written.get("listeners")
        written |= from_flags
        settings = from_texts(texts | from_flags, from_file.keys() - from_set.keys(), unresolved)
    except ConfigErrors as errors:
        raise ConfigErrors(
            [_with_unresolved_value(each, written, from_file, properties_file) for each in errors.errors]
        ) from None
    except ConfigError as error:
        raise _with_unresolved_value(error, written, from_file, properties_file) from None
    if overridden_listeners is not None and overridden_listeners != settings.client_listeners():
        address = from_flags["listeners"]
        warnings.append(f"listeners={replaced_listeners} has no effect: --listen {address} overrides it")
    return replace(settings, warnings=(*warnings, *settings.warnings))


def _with_unresolved_value(
    error: ConfigError, texts: Mapping[str, str], from_file: Mapping[str, str], file: Path | None
) -> ConfigError:
    """`error` with the unresolved value, and with the file if its setting is from there.

    texts: the settings of all sources, with references unresolved.
    """
    key, value, problem = error.key, error.value, error.problem
    if "${" in texts.get(key, ""):
        value = texts[key]
    if key in from_file and texts.get(key, from_file[key]) == from_file[key]:
        problem = f"{problem} (in {file})"
    return (UnusableFile if error.is_temporary else ConfigError)(key, value, problem)


def _parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """The settings of `--set` options. Raises ConfigError."""
    settings = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError("--set", assignment, "not of the form key=value")
        settings[key.strip()] = value
    return settings


def _has_effect(name: str) -> bool:
    return name in PROPERTIES or split_listener_name(name) is not None


def _overridden_listeners(texts: Mapping[str, str], address: str) -> list[Listener] | None:
    """The listeners that `--listen address` overrides; None if none are set.

    Raises ConfigError as without `--listen`, and where that names no protocol beside its address: it does
    not allow plaintext for a listener that was to be encrypted.
    """
    names = ("listeners", "listener.security.protocol.map", "controller.listener.names")
    if "listeners" not in texts:
        return None
    properties = [(name, *PROPERTIES[name]) for name in names if name in texts]
    values = {attribute: declared.parse(texts[name]) for name, attribute, declared in properties}
    settings = Settings(**values)
    try:
        listeners = for_clients(settings)
        if "://" not in address:
            raise_all(
                [
                    ConfigError(
                        "listeners", str(each), f"{protocol} would be plaintext at --listen {address}"
                    )
                    for each in listeners
                    if (protocol := settings.protocol_of(each)) != PLAINTEXT
                ]
            )
        return listeners
    except ConfigError as error:
        each = list(error.errors) if isinstance(error, ConfigErrors) else [error]
        advice = "--listen does not change that; to allow plaintext, set listeners=PLAINTEXT://HOST:PORT"
        each[-1] = ConfigError(each[-1].key, each[-1].value, f"{each[-1].problem}; {advice}")
        raise ConfigErrors(each) from None
