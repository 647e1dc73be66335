"""The configuration of a player, from TOML text: every mistake is named with its key. Pure.

Owns: names, kinds and defaults of the settings (docs/player.md has them as a table). Does not: look whether
the broker, the topic or the targets are there, or load a routing function.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeVar, get_args

from lockstep.player.core.settings import Bound, PlayerSettings
from lockstep.player.routing.header import TARGETS_HEADER
from lockstep.player.transport.factory import NO_TLS, Transport
from lockstep.player.transport.limits import MESSAGE_BYTES, PART_HEADER_BYTES
from lockstep.player.transport.tls_files import TlsFiles
from lockstep.protocol.lock_words import PREFIX as RESERVED

T = TypeVar("T")
Table = Mapping[str, Any]

First = int | Literal["earliest", "latest"]
Order = Literal["partition", "log group"]

CLAIMS_TOPIC: Final = "lockstep-players"
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""Names of players and targets: they appear in headers, separated by commas, in paths and in metrics."""
_HOST_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(\d{1,5})")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class PlayerConfigError(ValueError):
    """A setting that cannot be used; the text begins with its key."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key


class UnreadableConfigFile(PlayerConfigError):
    """A setting that names a file which is not there, or cannot be read now."""


@dataclass(frozen=True)
class ByHeader:
    """The record's header of that name names them. `otherwise`: the targets of records without one."""

    otherwise: tuple[str, ...] = ()
    header: str = TARGETS_HEADER


@dataclass(frozen=True)
class ByKey:
    """The hash of the record's key chooses one of `targets`: their order and number are the placement.

    `without_key`: the targets of records without a key.
    """

    targets: tuple[str, ...]
    without_key: tuple[str, ...] = ()


@dataclass(frozen=True)
class ByFunction:
    """`module:name` of a function with the signature of `lockstep.player.routing.selector.TargetSelector`."""

    function: str


@dataclass(frozen=True)
class ToAll:
    """Every record for each of `targets`; no batch is opened. None: for all that there are, at any time."""

    targets: tuple[str, ...] | None = None


Route = ByHeader | ByKey | ByFunction | ToAll


@dataclass(frozen=True)
class TargetConfig:
    """One target. `first`: where it begins if it has no mark yet."""

    address: str
    first: First = "earliest"


@dataclass(frozen=True)
class ClaimsConfig:
    """The claims: their topic, the interval of renewals, the silence after which one is taken."""

    topic: str = CLAIMS_TOPIC
    renew_ms: int = 2000
    lease_ms: int = 10_000


@dataclass(frozen=True)
class PlayerConfig:
    """A whole player."""

    player: str
    """Its name, unique among the players of this topic."""
    topic: str
    route: Route
    targets: Mapping[str, TargetConfig]
    bootstrap: str = "localhost:9092"
    partitions: tuple[int, ...] | None = None
    """None for all partitions that exist when the player starts."""
    order: Order = "partition"
    """What is one log to the targets: each partition, in the order of its offsets, or all partitions in one
    log group, in the order of its LSNs; that is for a player inside a broker alone."""
    transport: Transport = "grpc"
    listen: str | None = None
    """HOST:PORT of status, metrics and changes at run time; None for no listener."""
    listen_token: str = field(default="", repr=False)
    """What clients of `listen` have to send; empty for any client."""
    listen_certificate: str = ""
    """A PEM file with key and certificates, for HTTPS at `listen`; empty for HTTP."""
    settings: PlayerSettings = field(default_factory=PlayerSettings)
    claims: ClaimsConfig = field(default_factory=ClaimsConfig)
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Kafka's client properties of TLS and SASL, for the connections to the brokers."""
    tls: TlsFiles | None = None
    """TLS for the connections to the targets; None for none."""


def parse(text: str, bootstrap: str = PlayerConfig.bootstrap) -> PlayerConfig:
    """Returns a player from TOML; `bootstrap`: the default for a file without one. Raises
    PlayerConfigError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlayerConfigError("TOML", str(error)) from None
    return from_table(document, bootstrap)


def from_table(document: Table, bootstrap: str = PlayerConfig.bootstrap) -> PlayerConfig:
    """The same from what TOML becomes. Raises PlayerConfigError."""
    top = _Reader("", document)
    targets = {
        _check_name(f"targets.{name}", name): _target(f"targets.{name}", table)
        for name, table in top.take("targets", _table, {}).items()
    }
    _one_each(targets)
    config = PlayerConfig(
        player=_check_name("player", top.take("player", _text)),
        topic=top.take("topic", _text),
        route=_route(top.take("route", _table), targets),
        targets=targets,
        bootstrap=top.take("bootstrap", _text, bootstrap),
        partitions=top.take("partitions", _partitions, None),
        order=top.take("order", _one_of(*get_args(Order)), PlayerConfig.order),
        transport=top.take("transport", _one_of(*get_args(Transport)), PlayerConfig.transport),
        listen=top.take("listen", _host_port, None),
        listen_token=top.take("listen_token", _text, ""),
        listen_certificate=top.take("listen_certificate", _text, ""),
        settings=_settings(top.take("settings", _table, {})),
        claims=_claims(top.take("claims", _table, {})),
        client=_properties("client", top.take("client", _table, {})),
        tls=_tls(top.take("tls", _table, None)),
    )
    top.end()
    if config.tls is not None and config.transport != "grpc":
        raise PlayerConfigError("tls", NO_TLS)
    return config


def target_of(name: str, address: object, first: object = "earliest") -> TargetConfig:
    """One target that comes at run time. Raises PlayerConfigError."""
    _check_name("name", name)
    return _target("target", {"address": address, "first": first})


def at_address(targets: Mapping[str, TargetConfig], address: str) -> str | None:
    """The target at the address. It has one mark for a log: under two names it would miss entries."""
    return next((name for name, each in targets.items() if each.address == address), None)


# --- tables -----------------------------------------------------------------------------------------------


def _target(where: str, table: object) -> TargetConfig:
    reader = _Reader(where, _convert(where, table, _table))
    target = TargetConfig(reader.take("address", _address), reader.take("first", _first, TargetConfig.first))
    reader.end()
    return target


def _one_each(targets: Mapping[str, TargetConfig]) -> None:
    for name, target in targets.items():
        other = at_address(targets, target.address)
        if other != name:
            raise PlayerConfigError(f"targets.{name}.address", f"{target.address} is that of {other!r}")


def _route(table: Table, targets: Collection[str]) -> Route:
    reader = _Reader("route", table)
    by = reader.take("by", _one_of("header", "key", "function", "all"))
    names = _target_names(targets)
    route: Route
    if by == "header":
        route = ByHeader(reader.take("otherwise", names, ()), reader.take("header", _header, ByHeader.header))
    elif by == "key":
        route = ByKey(reader.take("targets", names), reader.take("without_key", names, ()))
    elif by == "all":
        route = ToAll(reader.take("targets", names, None))
    else:
        route = ByFunction(reader.take("function", _function))
    reader.end()
    return route


def _settings(table: Table) -> PlayerSettings:
    reader = _Reader("settings", table)
    found: dict[str, Any] = {}
    for each in fields(PlayerSettings):
        default = each.default
        kind: Callable[[object], object] = _bound if isinstance(default, Bound) else _number
        found[each.name] = reader.take(each.name, kind, default)
    reader.end()
    try:
        settings = PlayerSettings(**found)
    except ValueError as error:
        raise PlayerConfigError("settings", str(error)) from None
    batch, normal = settings.batch, settings.normal
    largest = MESSAGE_BYTES - batch.entries * PART_HEADER_BYTES
    if batch.size_bytes >= largest:
        raise PlayerConfigError(
            "settings.batch",
            f"of {batch.entries} entries it must have less than {max(largest, 0)} size_bytes",
        )
    if normal.entries < 2 * batch.entries or normal.size_bytes < 2 * batch.size_bytes:
        raise PlayerConfigError(
            "settings.normal", "it must hold two of settings.batch, or it overflows with each"
        )
    return settings


def _claims(table: Table) -> ClaimsConfig:
    reader = _Reader("claims", table)
    default = ClaimsConfig()
    claims = ClaimsConfig(
        reader.take("topic", _text, default.topic),
        reader.take("renew_ms", _number, default.renew_ms),
        reader.take("lease_ms", _number, default.lease_ms),
    )
    reader.end()
    if claims.renew_ms < 10:
        raise PlayerConfigError("claims.renew_ms", f"{claims.renew_ms} is below 10")
    if claims.lease_ms < 2 * claims.renew_ms:
        raise PlayerConfigError("claims.lease_ms", f"{claims.lease_ms} is not twice claims.renew_ms")
    return claims


def _tls(table: Table | None) -> TlsFiles | None:
    if table is None:
        return None
    reader = _Reader("tls", table)
    files = TlsFiles(*(reader.take(name, _text, "") for name in ("trusted", "certificate", "key")))
    reader.end()
    return files


def _properties(key: str, table: Table) -> dict[str, str]:
    """Properties with dots in their names, each of which TOML reads as a table of its own."""
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            inner = _properties(f"{key}.{name}", value)
            found |= {f"{name}.{each}": text for each, text in inner.items()}
        elif isinstance(value, str):
            found[name] = value
        else:
            raise PlayerConfigError(f"{key}.{name}", "is not a text")  # it may be a secret
    return found


# --- values: each raises ValueError for what it does not take ---------------------------------------------


def _table(value: object) -> Table:
    if not isinstance(value, dict):
        raise ValueError("is not a table")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is not a text")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise ValueError(f"{value!r} is not a whole number of 0 or more")
    return value


def _one_of(*words: str) -> Callable[[object], Any]:
    def kind(value: object) -> str:
        if value not in words:
            raise ValueError(f"{value!r} is none of {', '.join(words)}")
        return str(value)

    return kind


def _first(value: object) -> First:
    if value in ("earliest", "latest"):
        return value
    try:
        return _number(value)
    except ValueError:
        raise ValueError(f"{value!r} is neither earliest nor latest nor an offset") from None


def _host_port(value: object) -> str:
    found = _HOST_PORT.fullmatch(_text(value))
    if found is None or int(found[2]) > 65535:
        raise ValueError(f"{value!r} is not of the form HOST:PORT")
    return found[0]


def _address(value: object) -> str:
    text = _text(value)
    return text if text.startswith("unix:") and len(text) > len("unix:") else _host_port(value)


def _header(value: object) -> str:
    text = _text(value)
    if text.startswith(RESERVED) and text != TARGETS_HEADER:
        raise ValueError(
            f"{text!r}: of the headers that begin with {RESERVED}, which are Lockstep's own, only "
            f"{TARGETS_HEADER} names targets; take a name that begins otherwise"
        )
    return text


def _function(value: object) -> str:
    if not _FUNCTION.fullmatch(_text(value)):
        raise ValueError(f"{value!r} is not of the form module:name")
    return str(value)


def _bound(value: object) -> Bound:
    reader = _Reader("", _table(value))
    try:
        bound = Bound(reader.take("entries", _number), reader.take("size_bytes", _number))
        reader.end()
    except PlayerConfigError as error:
        raise ValueError(str(error)) from None
    return bound


def _partitions(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or len(set(map(repr, value))) < len(value):
        raise ValueError(f"{value!r} is not a list of partitions, each of them once")
    return tuple(map(_number, value))


def _target_names(targets: Collection[str]) -> Callable[[object], tuple[str, ...]]:
    def kind(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ValueError(f"{value!r} is not a list of targets")
        for each in value:
            if each not in targets:
                raise ValueError(f"there is no target {each!r}")
        if len(set(value)) < len(value) or not value:
            raise ValueError(f"{value!r} names no target, or one twice")
        return tuple(value)

    return kind


def _check_name(where: str, name: str) -> str:
    if not NAME.fullmatch(name):
        raise PlayerConfigError(
            where, f"{name!r}: a name has 1 to 100 letters, digits, dots, dashes, underscores"
        )
    return name


_REQUIRED: Final[Any] = object()


def _convert(key: str, value: object, kind: Callable[[object], T]) -> T:
    try:
        return kind(value)
    except ValueError as error:
        raise PlayerConfigError(key, str(error)) from None


class _Reader:
    """One table: each key is taken once, and none may be left over."""

    def __init__(self, where: str, table: Table) -> None:
        self._where = f"{where}." if where else ""
        self._left = dict(table)
        self._requested: list[str] = []

    def take(self, key: str, kind: Callable[[object], T], default: Any = _REQUIRED) -> T:
        self._requested.append(key)
        if key not in self._left:
            if default is _REQUIRED:
                raise PlayerConfigError(self._where + key, f"is missing{_suggestion(key, self._left)}")
            found: T = default
            return found
        return _convert(self._where + key, self._left.pop(key), kind)

    def end(self) -> None:
        for key in self._left:
            raise PlayerConfigError(
                self._where + key, f"there is no such setting{_suggestion(key, self._requested)}"
            )


def _suggestion(key: str, others: Collection[str]) -> str:
    """A suggestion for a key that may be misspelt."""
    like = get_close_matches(key, others, 1, 0.75)
    return f" (but {like[0]!r} looks like it)" if like else ""
