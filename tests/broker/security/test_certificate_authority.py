"""A cluster's own CA: what it issues, and what it does not."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from lockstep.broker.security.certificate_authority import (
    CertificateAuthority,
    CertificateError,
    Issued,
    hosts_of,
    node_of,
)
from lockstep.broker.security.distinguished_name import distinguished_name
from lockstep.storage.peers.peer_identity import PeerIdentity
from tests.support.certificates import SelfSignedCa

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
DAY = datetime.timedelta(days=1)


def new_ca(days: int = 3650) -> CertificateAuthority:
    return CertificateAuthority.create("cluster-a", NOW, days)


def pem(each: CertificateAuthority) -> bytes:
    return each.certificate.public_bytes(Encoding.PEM)


def meet(directory: Path, trusted: CertificateAuthority, server: Issued, client: Issued, host: str) -> str:
    """The two ends of a connection, each checked as strictly as Python does; "" or what fails."""
    contexts = []
    for purpose, own in ((ssl.Purpose.CLIENT_AUTH, server), (ssl.Purpose.SERVER_AUTH, client)):
        context = ssl.create_default_context(purpose, cadata=pem(trusted).decode())
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.verify_mode = ssl.CERT_REQUIRED
        file = directory / "own.pem"
        file.write_bytes(own.key_pem + own.certificate_pem)
        context.load_cert_chain(file)
        contexts.append(context)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        contexts[1].wrap_bio(to_client, to_server, server_hostname=host),
        contexts[0].wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return ""


def test_nodes_and_clients_know_each_other(tmp_path: Path) -> None:
    made = new_ca()
    node = made.issue_node(1, ["broker.example", "10.0.0.1", "::1", "_under.score"], NOW, 365)
    other = made.issue_node(2, ["localhost"], NOW, 365)
    client = made.issue_client("alice", NOW, 365)
    for host in ("broker.example", "10.0.0.1", "::1"):
        for end in (other, client):
            assert meet(tmp_path, made, node, end, host) == ""
    assert "Hostname mismatch" in meet(tmp_path, made, node, other, "elsewhere")
    assert "certificate purpose" in meet(tmp_path, made, client, other, "alice")
    assert "local issuer" in meet(tmp_path, new_ca(), node, other, "broker.example")


def test_what_is_in_a_certificate() -> None:
    made = new_ca()
    node, client = made.issue_node(7, ["b", "10.0.0.1"], NOW, 30), made.issue_client("alice", NOW, 30)
    assert node_of(node.certificate) == PeerIdentity("cluster-a", 7) and node_of(client.certificate) is None
    assert hosts_of(node.certificate) == ["b", "10.0.0.1"]
    assert node.expires == NOW + 30 * DAY and node.certificate.not_valid_before_utc < NOW
    assert distinguished_name(client.certificate.subject.public_bytes()) == "CN=alice"
    key = node.certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1"


def test_a_ca_is_read_again() -> None:
    made, other = new_ca(), new_ca()
    assert made.certificate.subject != other.certificate.subject, "both can be trusted at once"
    again = CertificateAuthority.load(made.key_pem, pem(other) + pem(made))
    assert again.certificate == made.certificate and again.cluster_id == "cluster-a"
    again.issue_client("a", NOW, 1).certificate.verify_directly_issued_by(made.certificate)


def test_what_is_no_new_ca() -> None:
    made, other = new_ca(), new_ca()
    for key, certificates, problem in (
        (made.key_pem, pem(other), "of none of its certificates"),
        (b"no key", pem(made), "cannot be read"),
        (made.key_pem, b"no certificate", "cannot be read"),
    ):
        with pytest.raises(CertificateError, match=problem):
            CertificateAuthority.load(key, certificates)
    foreign = SelfSignedCa()
    with pytest.raises(CertificateError, match="not made by"):
        CertificateAuthority(foreign.key, foreign.certificate).issue_node(1, ["a"], NOW, 1)


def test_a_certificate_does_not_outlive_its_new_ca() -> None:
    made = new_ca(days=30)
    assert made.issue_client("a", NOW, 30).expires == made.certificate.not_valid_after_utc
    with pytest.raises(CertificateError, match=r"the CA ends at .*lockstep certs new-ca"):
        made.issue_client("a", NOW, 31)
    later = NOW.replace(microsecond=7)
    assert CertificateAuthority.create("cluster", later, 30).issue_client("a", later, 30)


@pytest.mark.parametrize("host", ["", "a b", "-a", "a..b", "*.example", "host:9092", "https://a", "a" * 64])
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(CertificateError, match="neither a host name nor an address"):
        new_ca().issue_node(1, [host], NOW, 1)


@pytest.mark.parametrize("name", ["", "a" * 65])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(CertificateError, match="1 to 64 characters"):
        new_ca().issue_client(name, NOW, 1)


@pytest.mark.parametrize("cluster_id", ["", "a b", "ä", "a" * 65])
def test_what_is_no_cluster(cluster_id: str) -> None:
    with pytest.raises(CertificateError, match="cluster id"):
        CertificateAuthority.create(cluster_id, NOW, 1)
