"""References to values kept elsewhere: `${env:NAME}`, `${file:/path:key}`, `${directory:/path:file}`.

Owns: Kafka's `config.providers` for server properties, with its providers of environment variables, of
properties files and of directories of files, their `allowed.paths` and `allowlist.pattern` (KIP-297, KIP-421,
KIP-887, KIP-993). Invariants: a reference that cannot be followed stops the start and is named as it was
written; no error text contains a resolved value, and references in it are not followed. A provider of another
class is an error only if a setting with an effect here refers to it.
Does not: follow references in configurations that clients change while the broker runs.
Source: Kafka's ConfigTransformer, AllowedPaths and the three providers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import javaproperties

from lockstep.broker.process.regular_file import NotRegularFile, open_regular
from lockstep.broker.settings.foreign_names import PROVIDERS
from lockstep.broker.settings.properties import ConfigError, ConfigErrors, UnusableFile

_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_REFERENCE: Final = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
"""Groups 1, 3 and 4: provider, optional path, key. Kafka's ConfigTransformer.DEFAULT_PATTERN."""

Find = Callable[[str | None, str], str]
"""From (path, key) to the value. Raises _NotFound."""


class _NotFound(Exception):
    """A reference cannot be resolved; the text has the reason."""


class _Unreadable(_NotFound):
    """The same for a file that is not there, or cannot be read now."""


class UnresolvedReferences(ConfigErrors):
    """References that cannot be resolved; `found` has all settings but theirs."""

    def __init__(self, errors: Sequence[ConfigError], found: dict[str, str]) -> None:
        super().__init__(errors)
        self.found = found


def resolve_references(
    texts: Mapping[str, str], has_effect: Callable[[str], bool], environment: Mapping[str, str]
) -> dict[str, str]:
    """`texts` with each reference replaced by its value. Raises UnresolvedReferences.

    has_effect: true for the name of a setting with an effect here; only such a one needs a known provider.
    """
    providers: dict[str, Find | None] | None = None
    found: dict[str, str] = {}
    errors: list[ConfigError] = []
    are_providers_usable = True
    for name, text in texts.items():
        if name.startswith(PROVIDERS) or "${" not in text or _REFERENCE.search(text) is None:
            found[name] = text
            continue
        if not are_providers_usable:
            continue
        try:
            if providers is None:
                providers = _providers(texts, environment)
            found[name] = _replace_references(text, providers, has_effect(name))
        except _Unreadable as problem:
            errors.append(UnusableFile(name, text, str(problem)))
        except _NotFound as problem:
            errors.append(ConfigError(name, text, str(problem)))
        except ConfigError as error:
            are_providers_usable = False
            errors.append(error)
    if errors:
        raise UnresolvedReferences(errors, found)
    return found


def _replace_references(text: str, providers: Mapping[str, Find | None], has_effect: bool) -> str:
    def value(reference: re.Match[str]) -> str:
        provider, path, key = reference[1], reference[3], reference[4]
        if provider not in providers:
            raise _NotFound(f"{PROVIDERS} does not list {provider}")
        find = providers[provider]
        if find is not None:
            return find(path, key)
        if has_effect:
            raise _NotFound(f"{PROVIDERS}.{provider}.class is not one of {', '.join(_CLASSES)}")
        return reference[0]

    return _REFERENCE.sub(value, text)


def _providers(texts: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, Find | None]:
    """Listed provider -> how it finds values, None for an unknown class. Raises ConfigError."""
    found: dict[str, Find | None] = {}
    for provider in filter(None, map(str.strip, texts.get(PROVIDERS, "").split(","))):
        key = f"{PROVIDERS}.{provider}"
        class_name = texts.get(f"{key}.class")
        if class_name is None:
            raise ConfigError(PROVIDERS, texts[PROVIDERS], f"{key}.class is not set")
        provider_class = _CLASSES.get(class_name.strip())
        found[provider] = (
            None if provider_class is None else provider_class(f"{key}.param.", texts, environment)
        )
    return found


def _environment(prefix: str, texts: Mapping[str, str], environment: Mapping[str, str]) -> Find:
    name, pattern = f"{prefix}allowlist.pattern", texts.get(f"{prefix}allowlist.pattern", ".*")
    try:
        allowed = re.compile(pattern)
    except re.error as error:
        raise ConfigError(name, pattern, f"not a pattern: {error}") from None

    def find(path: str | None, key: str) -> str:
        if path:
            raise _NotFound("an environment variable has no path")
        if allowed.fullmatch(key) is None:
            raise _NotFound(f"{name} does not allow {key}")
        if key not in environment:
            raise _NotFound(f"there is no environment variable {key}")
        return environment[key]

    return find


def _file(prefix: str, texts: Mapping[str, str], environment: Mapping[str, str]) -> Find:
    allowed = _AllowedPaths(prefix, texts)
    read: dict[Path, Mapping[str, str]] = {}

    def find(path: str | None, key: str) -> str:
        file = allowed.path(path)
        if file not in read:
            with _not_found_on_error(file), open(file, encoding="utf-8", opener=open_regular) as stream:
                read[file] = javaproperties.load(stream)
        if key not in read[file]:
            raise _NotFound(f"{file} has no key {key}")
        return read[file][key]

    return find


def _directory(prefix: str, texts: Mapping[str, str], environment: Mapping[str, str]) -> Find:
    allowed = _AllowedPaths(prefix, texts)

    def find(path: str | None, key: str) -> str:
        directory = allowed.path(path)
        if os.path.basename(key) != key or key in ("", ".", ".."):
            raise _NotFound(f"{key} is not a file name")
        file = directory / key
        with _not_found_on_error(file), open(file, encoding="utf-8", opener=open_regular) as stream:
            return stream.read()

    return find


@contextmanager
def _not_found_on_error(path: Path) -> Iterator[None]:
    """Raise _NotFound or _Unreadable, without any content, if the file cannot be read or parsed."""
    try:
        yield
    except NotRegularFile as error:
        raise _NotFound(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:
        raise _Unreadable(f"{path} cannot be read: {(error.strerror or 'it failed').lower()}") from None
    except ValueError:
        raise _NotFound(f"{path} cannot be read: not valid text or properties") from None


class _AllowedPaths:
    """A provider's `allowed.paths`; without them it may read any path. Source: Kafka's AllowedPaths."""

    def __init__(self, prefix: str, texts: Mapping[str, str]) -> None:
        self._name = f"{prefix}allowed.paths"
        text = texts.get(self._name, "")
        self._paths = [Path(os.path.normpath(each.strip())) for each in text.split(",") if each.strip()]
        for each in self._paths:
            if not each.is_absolute() or not each.exists():
                raise ConfigError(self._name, text, f"{each} is not an absolute path that exists")

    def path(self, text: str | None) -> Path:
        """The path, if it may be read. Raises _NotFound."""
        if not text:
            raise _NotFound("the reference has no path; its form is ${PROVIDER:PATH:KEY}")
        path = Path(os.path.normpath(text))
        if self._paths and not (
            path.is_absolute() and any(path.is_relative_to(each) for each in self._paths)
        ):
            raise _NotFound(f"{self._name} does not allow {text}")
        return path


_CLASSES: Final = {
    f"{_PACKAGE}EnvVarConfigProvider": _environment,
    f"{_PACKAGE}FileConfigProvider": _file,
    f"{_PACKAGE}DirectoryConfigProvider": _directory,
}
