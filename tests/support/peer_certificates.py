"""Certificates of nodes for tests."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from cryptography.hazmat.primitives.serialization import Encoding

from lockstep.broker.security.peer_certificates import PeerCertificates
from lockstep.broker.settings.peer_settings import PEER_TLS_REQUIRE, PEERS_LISTENER
from lockstep.broker.settings.settings_reader import from_texts
from tests.support.certificates import NOW, Issued, SelfSignedCa

CLUSTER = "cluster-a"
AUTHORITY = SelfSignedCa("Authority of cluster-a")
FOREIGN = SelfSignedCa("Authority of others")


def issue_node(
    node_id: int,
    *,
    cluster_id: str = CLUSTER,
    authority: SelfSignedCa = AUTHORITY,
    ends: datetime.datetime = NOW + datetime.timedelta(days=365),
) -> Issued:
    """A certificate of a node."""
    names = ("localhost", f"lockstep-node:{node_id}", f"lockstep-cluster:{cluster_id}")
    return authority.issue(f"node-{node_id}", names=names, ends=ends)


def texts(issued: Issued, trusted: Sequence[SelfSignedCa] = (AUTHORITY,)) -> dict[str, str]:
    """The settings of a node with this certificate."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": issued.key_pem(),
        "ssl.keystore.certificate.chain": issued.certificate.public_bytes(Encoding.PEM).decode(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "".join(each.pem() for each in trusted),
    }


def peer_certificates(
    node_id: int,
    issued: Issued | None = None,
    *,
    mode: str = PEER_TLS_REQUIRE,
    trusted: Sequence[SelfSignedCa] = (AUTHORITY,),
    now: datetime.datetime = NOW,
) -> PeerCertificates:
    """What a node with this certificate has; by default one of its own."""
    settings = from_texts(texts(issue_node(node_id) if issued is None else issued, trusted))
    return PeerCertificates(settings.security_named(PEERS_LISTENER), mode, node_id, lambda: now)
