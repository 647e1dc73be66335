"""Each node of `lockstep serve --processes` gets ports, a directory and settings of its own."""

from __future__ import annotations

import pytest

from lockstep.broker.settings.peer_settings import PEERS_LISTENER
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.supervisor.node_plan import (
    MAX_PROCESSES,
    NodePlan,
    PlanError,
    node_directory,
    peer_port,
    plan_nodes,
    provisional_peers,
)
from tests.support.cases import each_case


def plan(processes: int = 3, *names: str, **texts: str) -> list[NodePlan]:
    """The plan for settings with underscores for dots; `names` are given besides."""
    given = {name.replace("_", "."): text for name, text in texts.items()}
    return plan_nodes(from_texts({"log.dirs": "data", **given}), processes, {*given, *names})


def test_ports_and_directories_follow_from_the_first_nodes() -> None:
    plans = plan(listeners="localhost:9092")
    assert [each.node_id for each in plans] == [1, 2, 3]
    assert [each.directory for each in plans] == ["data/node-1", "data/node-2", "data/node-3"]
    assert [str(each.listener) for each in plans] == [f"PLAINTEXT://localhost:{9092 + n}" for n in range(3)]
    assert [str(each.peer_listener) for each in plans] == [f"PEERS://localhost:{29092 + n}" for n in range(3)]
    assert {each.metrics_listener for each in plans} == {None}
    assert dict(plans[1].settings) == {
        "node.id": "2",
        "lockstep.peers": "1@localhost:29092,2@localhost:29093,3@localhost:29094",
        "log.dirs": "data/node-2",
        "listeners": "PLAINTEXT://localhost:9093",
        "lockstep.data.replicas": "1",
        "lockstep.peers.tls": "require",
        "listener.name.peers.ssl.keystore.type": "PEM",
        "listener.name.peers.ssl.keystore.location": "data/certificates/node-2.pem",
        "listener.name.peers.ssl.truststore.type": "PEM",
        "listener.name.peers.ssl.truststore.location": "data/certificates/ca.pem",
    }
    assert all(each.has_certificate for each in plans)


def test_certificates_of_nodes_can_be_turned_off_by_name_alone() -> None:
    off = plan(2, lockstep_peers_tls="disabled")[0]
    assert not off.has_certificate and not any("ssl" in name for name in off.settings)
    assert plan(2, lockstep_peers_tls="require")[0].has_certificate


def test_keys_of_clients_listeners_are_none_of_nodes() -> None:
    (first, _) = plan(2, ssl_keystore_password="secret", ssl_keystore_location="clients.p12")
    both = {"ssl.keystore.password": "secret", "ssl.keystore.location": "clients.p12", **first.settings}
    security = from_texts(both).security_named(PEERS_LISTENER)
    assert security.get("ssl.keystore.location") == "data/certificates/node-1.pem"
    assert security.get("ssl.keystore.password") is None


def test_each_nodes_settings_are_those_of_a_cluster_with_one_replica() -> None:
    for each in plan(4):
        settings = from_texts(each.settings)
        assert (settings.majority, settings.data_groups, settings.local_data_groups) == (1, 4, 1)


def test_metrics_and_advertised_ports_go_up_and_free_ones_stay_free() -> None:
    plans = plan(
        2,
        listeners="0.0.0.0:19092",
        advertised_listeners="PLAINTEXT://kafka.example.org:443",
        lockstep_metrics_listener="[::1]:9644",
    )
    assert [each.settings["lockstep.metrics.listener"] for each in plans] == ["[::1]:9644", "[::1]:9645"]
    assert [each.settings["advertised.listeners"] for each in plans] == [
        "PLAINTEXT://kafka.example.org:443",
        "PLAINTEXT://kafka.example.org:444",
    ]
    for each in plan(2, advertised_listeners="PLAINTEXT://h:0", lockstep_metrics_listener="localhost:0"):
        assert each.settings["lockstep.metrics.listener"] == "localhost:0"
        assert each.settings["advertised.listeners"] == "PLAINTEXT://h:0"


def test_all_listeners_go_up_and_the_command_looks_by_the_plaintext_one() -> None:
    second = plan(2, listeners="SSL://0.0.0.0:9192,PLAINTEXT://localhost:9092")[1]
    assert second.settings["listeners"] == "SSL://0.0.0.0:9193,PLAINTEXT://localhost:9093"
    assert [each.port for each in (second.listener, *second.listeners)] == [9093, 9193, 9093]
    assert second.peer_listener.port == 29_093


def test_a_number_of_replicas_that_was_given_stays() -> None:
    assert "lockstep.data.replicas" not in plan(lockstep_data_replicas="3")[0].settings


@each_case(
    ("processes", "texts", "name", "words"),
    [
        (1, {}, "", "the number of processes is 1 to 64"),
        (0, {}, "", "the number of processes is 1 to 64"),
        (MAX_PROCESSES + 1, {}, "", "the number of processes is 1 to 64"),
        (2, {}, "node.id", "node.id names one node"),
        (2, {}, "lockstep.peers", "lockstep.peers names one node"),
        (2, {"listeners": "SSL://h:1,A://h:2", "listener_security_protocol_map": "A:SSL"}, "", "PLAINTEXT"),
        (2, {"listeners": "localhost:0"}, "", "no port 0"),
        (2, {"lockstep_peers_tls": "prefer"}, "", "lockstep.peers.tls=prefer"),
        (2, {}, "listener.name.peers.ssl.keystore.key", "makes the certificates of its nodes itself"),
        (2, {"listeners": "localhost:65535"}, "", "no 2 ports for clients from 65535 on"),
        (9, {"listeners": "localhost:65430"}, "", "no 9 ports for nodes from 65530 on"),
        (2, {"lockstep_metrics_listener": "localhost:65535"}, "", "no 2 ports for metrics from 65535 on"),
    ],
)
def test_settings_that_do_not_fit_are_named(
    processes: int, texts: dict[str, str], name: str, words: str
) -> None:
    with pytest.raises(PlanError) as refused:
        plan(processes, *filter(None, [name]), **texts)
    assert words in str(refused.value)


def test_ports_between_nodes_stay_below_the_end() -> None:
    assert (peer_port(9092), peer_port(44_999), peer_port(45_000)) == (29_092, 64_999, 45_100)


def test_directories_of_any_data_directory() -> None:
    assert (node_directory("data/", 1), node_directory("/", 2)) == ("data/node-1", "//node-2")


def test_settings_are_checked_as_those_of_a_cluster() -> None:
    texts = {"node.id": "1", "lockstep.peers": provisional_peers(3), "default.replication.factor": "3"}
    assert len(from_texts(texts).peers()) == 3
