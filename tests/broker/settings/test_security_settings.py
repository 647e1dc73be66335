"""Settings of single listeners, what is described of secrets, and settings that no listener uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.broker.settings.config import PROPERTIES
from lockstep.broker.settings.described_config import describe_broker
from lockstep.broker.settings.dynamic_config import (
    InvalidBrokerConfig,
    apply_changes,
    canonical_text,
    declaration,
    is_reloadable,
    reject_fixed,
    without_effect,
)
from lockstep.broker.settings.loader import load
from lockstep.broker.settings.properties import ConfigError, Kind
from lockstep.broker.settings.security_settings import (
    SECURITY_PROPERTIES,
    declared_for_listener,
    split_listener_name,
)
from lockstep.broker.settings.settings_reader import from_texts
from tests.support.cases import each_case

LISTENERS = {
    "listeners": "SSL://:1,INSIDE://:2,PLAINTEXT://:3",
    "listener.security.protocol.map": "SSL:SSL,INSIDE:SSL,PLAINTEXT:PLAINTEXT",
}
LOCATION = "ssl.keystore.location"
OF_INSIDE = f"listener.name.inside.{LOCATION}"


@each_case(
    ("name", "split"),
    [
        (OF_INSIDE, ("inside", LOCATION)),
        ("listener.name.a.b.ssl.client.auth", ("a.b", "ssl.client.auth")),
        ("listener.name.inside.plain.sasl.jaas.config", ("inside", "sasl.jaas.config")),
        ("listener.name.plain.sasl.jaas.config", ("plain", "sasl.jaas.config")),
        ("listener.name.a.scram-sha-256.connections.max.reauth.ms", ("a", "connections.max.reauth.ms")),
        ("listener.name.a.plain.ssl.client.auth", ("a.plain", "ssl.client.auth")),
        ("listener.name.inside.num.io.threads", None),
        (f"listener.name.INSIDE.{LOCATION}", None),
        ("listener.name.inside.PLAIN.sasl.jaas.config", None),
        (LOCATION, None),
    ],
)
def test_names_of_a_listeners_own_settings(name: str, split: tuple[str, str] | None) -> None:
    assert split_listener_name(name) == split
    declared = declared_for_listener(name)
    assert (declared is None) == (split is None) and (declared is None or declared.name == name)


def test_a_listeners_own_setting_goes_before_the_one_for_all() -> None:
    settings = from_texts({**LISTENERS, LOCATION: "/all", OF_INSIDE: "/inside"})
    one, inside, _ = (settings.security_of(each) for each in settings.client_listeners())
    assert (one.get(LOCATION), one.name_of(LOCATION)) == ("/all", LOCATION)
    assert (inside.get(LOCATION), inside.name_of(LOCATION)) == ("/inside", OF_INSIDE)
    assert inside.get("ssl.client.auth") == "none"
    changed = apply_changes(settings, {}, {OF_INSIDE: "/changed"})
    assert changed.security_of(settings.client_listeners()[1]).get(LOCATION) == "/changed"


def test_a_value_that_a_listeners_own_setting_may_not_have() -> None:
    name = "listener.name.ssl.ssl.client.auth"
    with pytest.raises(ConfigError, match=rf"^{name}=perhaps: must be one of required, requested, none$"):
        from_texts({**LISTENERS, name: "perhaps"})
    settings = apply_changes(from_texts(LISTENERS), {}, {})
    security = settings.security_of(settings.client_listeners()[0])
    object.__setattr__(settings, "listener_texts", {name: "perhaps"})
    with pytest.raises(ConfigError, match=f"^{name}=perhaps"):
        settings.security_of(settings.client_listeners()[0]).get("ssl.client.auth")
    assert str(security.error("ssl.key.password", "is missing")) == "ssl.key.password=: is missing"
    secured = from_texts({**LISTENERS, "ssl.key.password": "hush"})
    security = secured.security_of(secured.client_listeners()[0])
    assert str(security.error("ssl.key.password", "bad")) == "ssl.key.password=[hidden]: bad"


def test_settings_that_no_listener_uses_are_warned_of() -> None:
    texts = {"ssl.client.auth": "none", OF_INSIDE: "/x"}
    assert from_texts(texts).warnings == (
        f"without effect: ssl.client.auth, {OF_INSIDE} (no such listener is encrypted)",
    )
    plain = {**LISTENERS, "listener.name.plaintext.ssl.client.auth": "none", OF_INSIDE: "/x"}
    assert from_texts(plain).warnings == (
        "without effect: listener.name.plaintext.ssl.client.auth (no such listener is encrypted)",
    )
    assert from_texts({**LISTENERS, **texts}).warnings == ()


@each_case(
    "name",
    [
        f"LISTENER.NAME.INSIDE.{LOCATION}",
        f"listener.name.INSIDE.{LOCATION}",
        "listener.name.inside.ssl.Key.Password",
        "listener.name.inside.PLAIN.sasl.jaas.config",
    ],
)
def test_capital_letters_of_a_listeners_own_setting_are_named(tmp_path: Path, name: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{name}=hush\n")
    lines = [f"{each}={text}" for each, text in LISTENERS.items()]
    settings = load(file, lines)
    assert settings.warnings == (
        f"{name} has no effect, as in Kafka: write it in lower case, {name.lower()}",
    )
    assert settings.security_named("INSIDE").get(LOCATION) is None
    with pytest.raises(ConfigError, match=f"{name}=.*: there is no such setting, write it in") as wrong:
        load(None, [*lines, f"{name}=hush"])
    assert ("hush" in str(wrong.value)) == name.endswith(LOCATION)


def test_users_of_no_mechanism_are_warned_of() -> None:
    name = "sasl.jaas.config"
    listeners = {"listeners": "SASL_SSL://:1"}
    for each in (name, f"listener.name.sasl_ssl.{name}"):
        (warning,) = from_texts({**listeners, each: "hush"}).warnings
        assert warning.startswith(
            f"{each} has no effect, as in Kafka: write listener.name.LISTENER.MECHANISM."
        )
    assert from_texts({**listeners, f"listener.name.sasl_ssl.plain.{name}": "hush"}).warnings == ()


@each_case("protocol", ["TLS", "SASL", "KERBEROS"])
def test_a_protocol_that_is_not_served(protocol: str) -> None:
    with pytest.raises(ConfigError, match=f"{protocol} is not served, only PLAINTEXT, SSL, SASL_"):
        from_texts({"listeners": "A://:1", "listener.security.protocol.map": f"A:{protocol}"})


def test_an_address_alone_does_not_take_the_encryption_away(tmp_path: Path) -> None:
    lines = ["listeners=SSL://:9093"]
    with pytest.raises(ConfigError, match="SSL://:9093: SSL would be plaintext at --listen localhost:1"):
        load(None, lines, {"listeners": "localhost:1"})
    encrypted = load(None, lines, {"listeners": "SSL://localhost:1"})
    assert encrypted.protocol_of(encrypted.client_listeners()[0]) == "SSL"


def test_no_secret_is_described() -> None:
    secrets = {name: "hush" for name, (_, each) in SECURITY_PROPERTIES.items() if each.kind is Kind.PASSWORD}
    own = {f"listener.name.inside.{name}": text for name, text in secrets.items()}
    settings = apply_changes(
        from_texts({**LISTENERS, **secrets, **own, OF_INSIDE: "/x"}),
        {},
        {"listener.name.ssl.ssl.key.password": "hush"},
    )
    described = {each.declared.name: each for each in describe_broker(settings)}
    for name in (*secrets, *own, "listener.name.ssl.ssl.key.password"):
        found = described[name]
        assert found.is_sensitive and found.value is None and all(each[1] is None for each in found.synonyms)
    assert described[OF_INSIDE].value == "/x" and not described[OF_INSIDE].is_sensitive
    assert PROPERTIES.keys() <= described.keys()


def test_keys_and_certificates_of_a_listener_are_changed_while_running() -> None:
    reject_fixed([OF_INSIDE])
    assert is_reloadable(OF_INSIDE) and canonical_text(OF_INSIDE, " /x ") == "/x"
    assert without_effect({OF_INSIDE: "/x"}, {}) == []
    with pytest.raises(InvalidBrokerConfig, match="broker id must be specified"):
        reject_fixed([OF_INSIDE], for_all=True)
    fixed = "listener.name.inside.ssl.client.auth"
    assert declaration(fixed) is None and not is_reloadable(fixed)
    with pytest.raises(InvalidBrokerConfig, match="Cannot update these configs dynamically"):
        reject_fixed([fixed])


PEERS = {"lockstep.peers": "1@localhost:1,2@localhost:2"}
OF_PEERS = "listener.name.peers.ssl.truststore.location"


def test_the_replication_listener_has_settings_of_encryption_where_it_is_encrypted() -> None:
    secured = PEERS | {"lockstep.peers.tls": "require", "ssl.keystore.location": "/k", OF_PEERS: "/x"}
    settings = from_texts(secured)
    assert settings.warnings == () and settings.uses_peer_tls
    security = settings.security_named("PEERS")
    assert (security.get("ssl.truststore.location"), security.get("ssl.keystore.location")) == ("/x", "/k")
    assert security.name_of("ssl.truststore.location") == OF_PEERS
    plain = from_texts(PEERS | {OF_PEERS: "/x"})
    assert plain.warnings == (f"without effect: {OF_PEERS} (no such listener is encrypted)",)
    assert not plain.uses_peer_tls and plain.lockstep_peers_tls == "disabled"


def test_a_node_alone_has_no_use_for_certificates_of_nodes() -> None:
    settings = from_texts({"lockstep.peers.tls": "require"})
    problem = "lockstep.peers.tls has no effect without lockstep.peers: this node is alone"
    assert settings.warnings == (problem,) and not settings.uses_peer_tls


def test_a_listener_of_clients_with_the_name_of_the_replication_listener() -> None:
    named = {"listeners": "PEERS://localhost:0", "listener.security.protocol.map": "PEERS:SSL"}
    from_texts(PEERS | named)
    with pytest.raises(ConfigError, match=r"^listeners=PEERS.* are the replication listener's"):
        from_texts(PEERS | named | {"lockstep.peers.tls": "allow"})


def test_the_words_of_lockstep_peers_tls() -> None:
    with pytest.raises(ConfigError, match=r"^lockstep\.peers\.tls=required"):
        from_texts(PEERS | {"lockstep.peers.tls": "required"})
