"""The certificates by which nodes of a cluster know each other: of this node, and of those it trusts.

Owns: `PeerCertificates`, the `PeerTls` of `storage/peers/`. Invariants: the certificate is of this node and
has a cluster's id; it stays of the same node and cluster while the node runs; a CA that this node
trusts has signed it. Does not: speak TLS or check peers (`storage/peers/`). A node needs no host name: nodes
are verified by their numbers, so an address may change.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Callable
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from lockstep.broker.security.certificate_authority import identity_in, is_issued_by
from lockstep.broker.security.key_store import KeyStore, read_key_store, read_trust_store
from lockstep.broker.security.reloadable_key_store import Contexts, ReloadableKeyStore, load_key, trust
from lockstep.broker.settings.peer_settings import PEER_TLS_ALLOW, PEER_TLS_REQUIRE
from lockstep.broker.settings.security_settings import ListenerSecurity
from lockstep.storage.peers.peer_identity import NoPeerIdentity, PeerIdentity

REMEDY: Final = "; `lockstep certs` makes certificates of nodes"


class PeerCertificates(ReloadableKeyStore):
    """See the module. Raises ConfigError for settings that cannot be used.

    Args:
        mode: lockstep.peers.tls.
        node_id: this node.
        now: the time, with its zone.
    """

    others = "the other nodes"

    def __init__(
        self, security: ListenerSecurity, mode: str, node_id: int, now: Callable[[], datetime.datetime]
    ) -> None:
        self._node_id = node_id
        self.accepts_plaintext = mode != PEER_TLS_REQUIRE
        self.dials = mode != PEER_TLS_ALLOW
        super().__init__(security, now)
        self.identity = identity_of(security, self._keys)
        """This node, as its certificate names it."""

    @property
    def server_context(self) -> ssl.SSLContext:
        """The context of connections that are accepted now."""
        return self._contexts[0]

    @property
    def client_context(self) -> ssl.SSLContext:
        """The context of connections that are dialed now."""
        return self._contexts[1]

    def check_cluster(self, recorded: str | None) -> None:
        """Raises ConfigError where the data of this node are of another cluster than its certificate."""
        if recorded not in (None, self.identity.cluster_id):
            problem = (
                f"its certificate is of cluster {self.identity.cluster_id}, the data directory of "
                f"{recorded}: `lockstep certs create --cluster-id {recorded}` makes certificates for it"
            )
            raise self._security.error("ssl.keystore.location", problem)

    def _read(self, security: ListenerSecurity) -> tuple[KeyStore, Contexts]:
        keys, trusted = read_key_store(security, self._now()), read_trust_store(security)
        if trusted is None:
            problem = "missing: the certificates of other nodes are checked against it"
            raise security.error("ssl.truststore.location", problem + REMEDY)
        found = identity_of(security, keys)
        if found.node_id != self._node_id:
            problem = f"its certificate is of node {found.node_id}, this is node {self._node_id} (node.id)"
            raise security.error("ssl.keystore.location", problem)
        _check_usage(security, keys.chain[0])
        if not any(is_issued_by(each, ca) for each in keys.chain for ca in trusted):
            problem = "no CA of ssl.truststore has signed its certificate: other nodes would reject it"
            raise security.error("ssl.keystore.location", problem)
        return keys, (
            _context(ssl.PROTOCOL_TLS_SERVER, security, keys, trusted),
            _context(ssl.PROTOCOL_TLS_CLIENT, security, keys, trusted),
        )

    def _check_successor(self, security: ListenerSecurity, new: KeyStore) -> None:
        found = identity_of(security, new)
        if found != self.identity:
            problem = f"its certificate is of {found}, this is {self.identity}"
            raise security.error("ssl.keystore.location", problem)


def identity_of(security: ListenerSecurity, keys: KeyStore) -> PeerIdentity:
    """The node that a certificate is of. Raises ConfigError."""
    try:
        return identity_in(keys.chain[0])
    except NoPeerIdentity as error:
        raise security.error("ssl.keystore.location", f"{error}{REMEDY}") from None


def _check_usage(security: ListenerSecurity, certificate: x509.Certificate) -> None:
    """Raises ConfigError for a certificate that is not for both ends of a connection."""
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH} <= set(usages):
        problem = "its certificate is not both for servers and for clients (extended key usage), as a node is"
        raise security.error("ssl.keystore.location", problem + REMEDY)


def _context(
    protocol: int, security: ListenerSecurity, keys: KeyStore, trusted: tuple[x509.Certificate, ...]
) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False  # a node is known by its number
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # each connection is checked again
    load_key(context, security, keys)
    trust(context, trusted)
    return context
