"""A player's configuration: what is taken, and how each mistake is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lockstep.player.core.settings import Bound, PlayerSettings
from lockstep.player.transport.tls_files import TlsFiles
from lockstep.player_host.config import (
    ByFunction,
    ByHeader,
    ByKey,
    ClaimsConfig,
    PlayerConfig,
    PlayerConfigError,
    TargetConfig,
    ToAll,
    from_table,
    parse,
    target_of,
)
from lockstep.player_host.player_process import PlayerProcess
from tests.support.cases import each_case

DOCUMENT = Path(__file__).parents[3] / "docs" / "player.md"
LEAST: dict[str, Any] = {
    "player": "one",
    "topic": "orders",
    "route": {"by": "header"},
    "targets": {"a": {"address": "localhost:7001"}, "b": {"address": "unix:/run/b"}},
}


def changed(key: str, value: object) -> dict[str, Any]:
    """`LEAST` with one key set, which may be of a table: `route.by`."""
    document = {name: dict(each) if isinstance(each, dict) else each for name, each in LEAST.items()}
    table: Any = document
    *outer, last = key.split("/")
    for name in outer:
        table[name] = dict(table.get(name, {}))
        table = table[name]
    table[last] = value
    return document


def test_the_least() -> None:
    assert from_table(LEAST) == PlayerConfig(
        player="one",
        topic="orders",
        route=ByHeader(),
        targets={"a": TargetConfig("localhost:7001", "earliest"), "b": TargetConfig("unix:/run/b")},
        bootstrap="localhost:9092",
        partitions=None,
        transport="grpc",
        listen=None,
        settings=PlayerSettings(),
        claims=ClaimsConfig("lockstep-players", 2000, 10_000),
    )


def test_the_document_begins_with_a_whole_one() -> None:
    first = re.search(r"```toml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert first is not None
    config = parse(first[1])
    default = parse('player = "x"\ntopic = "x"\nroute = {by = "header"}')
    assert config.settings == default.settings, "the values that it shows are the defaults"
    assert (config.claims, config.transport) == (default.claims, default.transport)
    assert set(config.targets) == {"a", "b"}
    assert config.listen is not None


@each_case(
    ("route", "expected"),
    [
        ({"by": "header", "otherwise": ["b"]}, ByHeader(("b",))),
        ({"by": "header"}, ByHeader((), "lockstep-targets")),
        ({"by": "header", "header": "shards"}, ByHeader((), "shards")),
        ({"by": "header", "header": "lockstep-targets"}, ByHeader()),
        ({"by": "key", "targets": ["b", "a"]}, ByKey(("b", "a"))),
        ({"by": "key", "targets": ["a"], "without_key": ["b"]}, ByKey(("a",), ("b",))),
        ({"by": "all"}, ToAll()),
        ({"by": "all", "targets": ["b"]}, ToAll(("b",))),
        ({"by": "function", "function": "shop.routes:of.order"}, None),
        ({"by": "function", "function": "shop.routes:of_order"}, ByFunction("shop.routes:of_order")),
    ],
)
def test_routes(route: dict[str, Any], expected: object) -> None:
    if expected is None:
        with pytest.raises(PlayerConfigError, match=r"^route.function: "):
            from_table(changed("route", route))
    else:
        assert from_table(changed("route", route)).route == expected


def test_what_may_be_set() -> None:
    document = {
        **LEAST,
        "partitions": [2, 0],
        "transport": "raw",
        "listen": "[::1]:9780",
        "bootstrap": "one:9092,two:9092",
        "settings": {"dummy_every": 0, "batch": {"entries": 5, "size_bytes": 6}},
        "claims": {"topic": "mine", "renew_ms": 10, "lease_ms": 20},
    }
    config = from_table(document)
    assert config.partitions == (2, 0)
    assert (config.transport, config.listen) == ("raw", "[::1]:9780")
    assert config.settings.batch == Bound(5, 6)
    assert config.settings.dummy_every == 0
    assert config.claims == ClaimsConfig("mine", 10, 20)
    assert from_table(changed("targets/a/first", "latest")).targets["a"].first == "latest"
    assert from_table(changed("targets/a/first", 17)).targets["a"].first == 17


@each_case("key", ["player", "topic", "route"])
def test_what_must_be_there(key: str) -> None:
    with pytest.raises(PlayerConfigError, match=f"^{key}: is missing$"):
        from_table({name: each for name, each in LEAST.items() if name != key})


@each_case(
    ("key", "value", "said"),
    [
        ("player", "a b", "player: 'a b': a name has"),
        ("player", "", "player: '' is not a text"),
        ("topic", 3, "topic: 3 is not a text"),
        ("nonsense", 1, "nonsense: there is no such setting"),
        ("transport", "http", "transport: 'http' is none of grpc, raw"),
        ("transport", [], "transport: [] is none of grpc, raw"),
        ("listen", "9780", "listen: '9780' is not of the form HOST:PORT"),
        ("listen", "here:99999", "listen: 'here:99999' is not of the form HOST:PORT"),
        ("partitions", [], "partitions: [] is not a list"),
        ("partitions", 1, "partitions: 1 is not a list"),
        ("partitions", [1, 1], "partitions: [1, 1] is not a list"),
        ("partitions", [-1], "partitions: -1 is not a whole number"),
        ("partitions", [True], "partitions: True is not a whole number"),
        ("targets", 1, "targets: is not a table"),
        ("targets/a b", {"address": "h:1"}, "targets.a b: 'a b': a name has"),
        ("targets/a", 1, "targets.a: is not a table"),
        ("targets/b/address", "localhost:7001", "targets.b.address: localhost:7001 is that of 'a'"),
        ("targets/a", {}, "targets.a.address: is missing"),
        (
            "targets/a/adress",
            "h:1",
            "targets.a.adress: there is no such setting (but 'address' looks like it)",
        ),
        ("targets/a", {"adress": "h:1"}, "targets.a.address: is missing (but 'adress' looks like it)"),
        ("listne", "h:1", "listne: there is no such setting (but 'listen' looks like it)"),
        ("targets/a/address", "unix:", "targets.a.address: 'unix:' is not of the form"),
        ("targets/a/first", "newest", "targets.a.first: 'newest' is neither"),
        ("targets/a/first", -1, "targets.a.first: -1 is neither"),
        ("route", "header", "route: is not a table"),
        ("route/by", "hash", "route.by: 'hash' is none of header, key, function, all"),
        ("route/otherwise", "a", "route.otherwise: 'a' is not a list of targets"),
        ("route/otherwise", [1], "route.otherwise: [1] is not a list of targets"),
        ("route/otherwise", ["c"], "route.otherwise: there is no target 'c'"),
        ("route/otherwise", ["a", "a"], "route.otherwise: ['a', 'a'] names no target, or one twice"),
        (
            "route/header",
            "lockstep-hwm",
            "route.header: 'lockstep-hwm': of the headers that begin with lockstep-",
        ),
        ("route/header", "lockstep-read-lock@t-0", "route.header: 'lockstep-read-lock@t-0': of the headers"),
        ("route/function", "m:f", "route.function: there is no such setting"),
        ("route", {"by": "key"}, "route.targets: is missing"),
        ("route", {"by": "key", "targets": []}, "route.targets: [] names no target"),
        ("settings/heartbeats_ms", 1, "settings.heartbeats_ms: there is no such setting"),
        ("settings/heartbeat_ms", "1", "settings.heartbeat_ms: '1' is not a whole number"),
        ("settings/heartbeat_ms", 0, "settings: timers and counts begin at 1"),
        ("settings/batch", 5, "settings.batch: is not a table"),
        ("settings/batch", {"entries": 5}, "settings.batch: size_bytes: is missing"),
        ("settings/batch", {"entries": 0, "size_bytes": 1}, "settings.batch: a bound of 0 entries"),
        ("settings/batch", {"entries": 1000, "size_bytes": 4 << 20}, "settings.batch: of 1000 entries"),
        (
            "settings/batch",
            {"entries": 200_000, "size_bytes": 9},
            "settings.batch: of 200000 entries it must",
        ),
        ("settings/normal", {"entries": 1999, "size_bytes": 2 << 20}, "settings.normal: it must hold two"),
        ("settings/normal", {"entries": 2000, "size_bytes": 2 << 19}, "settings.normal: it must hold two"),
        ("claims/renew_ms", 9, "claims.renew_ms: 9 is below 10"),
        ("claims/lease_ms", 3999, "claims.lease_ms: 3999 is not twice claims.renew_ms"),
        ("claims/lease", 3999, "claims.lease: there is no such setting"),
    ],
)
def test_mistakes_are_named(key: str, value: object, said: str) -> None:
    with pytest.raises(PlayerConfigError) as raised:
        from_table(changed(key, value))
    assert str(raised.value).startswith(said)
    assert raised.value.key == said.split(": ")[0]


def test_the_brokers_where_a_configuration_names_none() -> None:
    assert from_table(LEAST).bootstrap == "localhost:9092"
    assert from_table(LEAST, "elsewhere:1").bootstrap == "elsewhere:1"
    assert from_table(changed("bootstrap", "here:1"), "elsewhere:1").bootstrap == "here:1"


def test_what_is_no_toml() -> None:
    with pytest.raises(PlayerConfigError, match=r"^TOML: .*key"):
        parse("player = 'x'\ntopic")


def test_a_target_at_run_time() -> None:
    assert target_of("c", "here:1", 5) == TargetConfig("here:1", 5)
    for name, address, first in (("c d", "here:1", 0), ("c", None, 0), ("c", "here:1", "x")):
        with pytest.raises(PlayerConfigError):
            target_of(name, address, first)


def test_orders() -> None:
    assert from_table(LEAST).order == "partition"
    assert from_table(changed("order", "log group")).order == "log group"
    with pytest.raises(PlayerConfigError, match=r"^order: 'lsn' is none of partition, log group"):
        from_table(changed("order", "lsn"))


def test_the_security_of_its_connections() -> None:
    text = """
player = "one"
topic = "orders"
route.by = "all"
[client]
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
"ssl.truststore.location" = "ca.pem"
[tls]
trusted = "ca.pem"
certificate = "player.pem"
"""
    config = parse(text)
    assert config.client == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.truststore.location": "ca.pem",
    }
    assert config.tls == TlsFiles("ca.pem", "player.pem")
    assert "SASL_SSL" not in repr(config)
    with pytest.raises(PlayerConfigError, match=r"^client\.sasl\.jaas\.config: is not a text$"):
        parse(text.replace("sasl.mechanism", "sasl.jaas.config = 1\nsasl.mechanism"))
    with pytest.raises(PlayerConfigError, match=r"^tls\.trustd: there is no such setting"):
        parse(text.replace("trusted", "trustd"))
    with pytest.raises(PlayerConfigError, match=r"^tls: the transport raw has no TLS"):
        parse('transport = "raw"\n' + text)


def test_keys_are_looked_at_before_the_start(tmp_path: Path) -> None:
    for section, reason in (
        ('[client]\nsecurity.protocol = "SLL"', r"^client: security\.protocol: 'SLL' is none of"),
        ('[tls]\ntrusted = "nowhere.pem"', r"^tls: cannot read nowhere\.pem: no such file"),
    ):
        config = parse(f'player = "one"\ntopic = "t"\nroute.by = "all"\n{section}\n')
        with pytest.raises(PlayerConfigError, match=reason):
            PlayerProcess(config)
