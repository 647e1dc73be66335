"""The certificates of nodes: what stops a start, and what replaces them while a node runs."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from lockstep.broker.security.peer_certificates import PeerCertificates
from lockstep.broker.settings.peer_settings import PEERS_LISTENER
from lockstep.broker.settings.properties import ConfigError
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.storage.peers.peer_identity import PeerIdentity
from tests.support.certificates import NOW, SelfSignedCa
from tests.support.peer_certificates import (
    AUTHORITY,
    CLUSTER,
    FOREIGN,
    issue_node,
    peer_certificates,
    texts,
)

DAY = datetime.timedelta(days=1)


def test_a_node_and_its_modes() -> None:
    found = peer_certificates(3)
    assert found.identity == PeerIdentity(CLUSTER, 3) and found.dials and not found.accepts_plaintext
    assert found.expiry_warnings == []
    modes = {each: peer_certificates(3, mode=each) for each in ("allow", "prefer")}
    assert {name: (each.dials, each.accepts_plaintext) for name, each in modes.items()} == {
        "allow": (False, True),
        "prefer": (True, True),
    }


def test_a_certificate_that_ends_soon_is_warned_of() -> None:
    found = peer_certificates(3, issue_node(3, ends=NOW + 5 * DAY))
    (line,) = found.expiry_warnings
    assert "listener PEERS expires at" in line and "the other nodes reject it from then on" in line


def without_names() -> dict[str, str]:
    return texts(AUTHORITY.issue("node-1", names=()))


WRONG: list[tuple[str, dict[str, str], str, str]] = [
    ("nothing", {}, "ssl.keystore.location", "missing: the listener PEERS needs a key and a certificate"),
    ("another node", texts(issue_node(2)), "ssl.keystore", "is of node 2, this is node 1 (node.id)"),
    ("no names", without_names(), "ssl.keystore", "is of no node: it has no alternative names; `lockstep"),
    ("a client", texts(AUTHORITY.issue("a")), "ssl.keystore", "is of no node: no name lockstep-node:"),
    ("expired", texts(issue_node(1, ends=NOW - DAY / 2)), "ssl.keystore", "expired at"),
    (
        "untrusted",
        texts(issue_node(1), (FOREIGN,)),
        "ssl.keystore",
        "no CA of ssl.truststore has signed",
    ),
]


@pytest.mark.parametrize(
    ("given", "setting", "problem"), [each[1:] for each in WRONG], ids=[each[0] for each in WRONG]
)
def test_what_stops_a_start(given: dict[str, str], setting: str, problem: str) -> None:
    settings = from_texts(given)
    with pytest.raises(ConfigError) as raised:
        PeerCertificates(settings.security_named(PEERS_LISTENER), "require", 1, lambda: NOW)
    assert raised.value.key.startswith(setting) and problem in raised.value.problem
    assert "PRIVATE KEY" not in str(raised.value)


def test_without_those_whom_it_trusts() -> None:
    given = {name: text for name, text in texts(issue_node(1)).items() if "truststore" not in name}
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location.*checked against it"):
        PeerCertificates(from_texts(given).security_named(PEERS_LISTENER), "require", 1, lambda: NOW)


def test_its_own_settings_go_before_those_of_clients() -> None:
    given = texts(issue_node(1))
    own = {f"listener.name.peers.{name}": text for name, text in given.items()}
    others = {f"{name}": text for name, text in texts(FOREIGN.issue("broker"), (FOREIGN,)).items()}
    settings = from_texts({**own, **others})
    found = PeerCertificates(settings.security_named(PEERS_LISTENER), "require", 1, lambda: NOW)
    assert found.identity.node_id == 1


def test_data_of_another_cluster() -> None:
    found = peer_certificates(1)
    found.check_cluster(None)
    found.check_cluster(CLUSTER)
    with pytest.raises(ConfigError, match="lockstep certs create --cluster-id cluster-z"):
        found.check_cluster("cluster-z")


class Files:
    """A node whose certificates are files."""

    def __init__(self, directory: Path) -> None:
        self.own, self.trusted = directory / "node-1.pem", directory / "ca.pem"
        issue_node(1).write_pem(self.own)
        self.trust(AUTHORITY)
        given = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.own),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted),
        }
        self.security = from_texts(given).security_named(PEERS_LISTENER)
        self.node = PeerCertificates(self.security, "require", 1, lambda: NOW)

    def trust(self, *authorities: SelfSignedCa) -> None:
        self.trusted.write_text("".join(each.pem() for each in authorities))

    def reloaded(self) -> bool:
        """Have the files looked at; whether new contexts were made."""
        former = self.node.server_context, self.node.client_context
        self.node.reload_changed()
        both = self.node.server_context is not former[0], self.node.client_context is not former[1]
        assert both[0] == both[1]
        return all(both)


def test_a_new_authority_comes_in_three_steps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = Files(tmp_path)
    assert not files.reloaded()
    files.trust(FOREIGN, AUTHORITY)
    assert files.reloaded()
    issue_node(1, authority=FOREIGN).write_pem(files.own)
    assert files.reloaded()
    files.trust(FOREIGN)
    assert files.reloaded() and not files.reloaded()
    assert "keeps its former keys" not in caplog.text


def test_steps_in_the_wrong_order_leave_what_was_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    issue_node(1, authority=FOREIGN).write_pem(files.own)
    assert not files.reloaded() and "no CA of ssl.truststore has signed its certificate" in caplog.text
    files.trust(FOREIGN)
    assert files.reloaded(), "what was missing has come"


@pytest.mark.parametrize(
    ("issued", "problem"),
    [
        (issue_node(2), "its certificate is of node 2, this is node 1"),
        (issue_node(1, cluster_id="z"), "of node 1 of cluster z, this is node 1 of cluster cluster-a"),
        (issue_node(1, ends=NOW - DAY / 2), "expired"),
    ],
)
def test_a_certificate_that_is_not_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, issued: object, problem: str
) -> None:
    files = Files(tmp_path)
    issued.write_pem(files.own)  # type: ignore[attr-defined]
    assert not files.reloaded() and caplog.text.count(problem) == 1
    assert not files.reloaded() and caplog.text.count(problem) == 1, "once for the same files"
