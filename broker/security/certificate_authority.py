"""A private CA for one cluster, and the certificates that it issues to nodes and clients.

Pure but for random keys and serial numbers; the time is an argument. Owns: what such certificates look like:
elliptic keys (P-256), a node's names (hosts, `lockstep-node`, `lockstep-cluster`) and uses (both ends of a
connection), a client's subject, which is its principal. Invariants: a certificate does not outlive its CA;
two CAs of a cluster have different names, so that both can be trusted at once. Does not:
know files (`lockstep/commands/certificate_directory.py`).
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lockstep.storage.peers.peer_identity import NoPeerIdentity, PeerIdentity, is_cluster_id, parse_identity

CLOCK_SKEW: Final = datetime.timedelta(hours=1)
"""Certificates are valid from this time before now: clocks of machines differ."""
MAX_NAME: Final = 64
"""LIMIT. Characters of a subject's common name (X.520)."""
_HOST: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")
_SIGNS: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class CertificateError(ValueError):
    """A certificate that cannot be made or read; the text is for operators."""


@dataclass(frozen=True)
class Issued:
    """A certificate with its private key."""

    key_pem: bytes = field(repr=False)
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def expires(self) -> datetime.datetime:
        return self.certificate.not_valid_after_utc


class CertificateAuthority:
    """A CA with its key."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self.certificate = certificate

    @classmethod
    def create(cls, cluster_id: str, now: datetime.datetime, days: int) -> CertificateAuthority:
        """A new CA of a cluster. Raises CertificateError."""
        if not is_cluster_id(cluster_id):
            raise CertificateError(
                f"cluster id {cluster_id!r}: letters, digits, - and _, at most 64 of them, as "
                "`lockstep cluster status` shows it"
            )
        key, number = ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number()
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster_id),
                x509.NameAttribute(NameOID.COMMON_NAME, f"Lockstep CA {number & 0xFFFFFFFF:08x}"),
            ]
        )
        builder = (
            _builder(subject, subject, key, now, now + datetime.timedelta(days=days), number)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, key_pem: bytes, certificates_pem: bytes) -> CertificateAuthority:
        """The CA of a key, of which one of these certificates is. Raises CertificateError."""
        try:
            key = load_pem_private_key(key_pem, None)
            known = x509.load_pem_x509_certificates(certificates_pem)
        except (ValueError, TypeError) as error:
            raise CertificateError(f"the CA cannot be read: {error}") from None
        own = [each for each in known if each.public_key() == key.public_key()]
        if not own or not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CertificateError("the key of the CA is of none of its certificates")
        return cls(key, own[0])

    @property
    def cluster_id(self) -> str:
        """The cluster. Raises CertificateError for a CA of other makers."""
        found = self.certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        if not found or not is_cluster_id(str(found[0].value)):
            raise CertificateError("the CA was not made by `lockstep certs`: it names no cluster")
        return str(found[0].value)

    @property
    def key_pem(self) -> bytes:
        return _key_pem(self._key)

    def issue_node(self, node_id: int, hosts: Sequence[str], now: datetime.datetime, days: int) -> Issued:
        """A certificate for a node. Args: hosts: names and addresses by which clients reach it. Raises
        CertificateError."""
        uris = PeerIdentity(self.cluster_id, node_id).uris
        names: list[x509.GeneralName] = [host_name(each) for each in hosts]
        names += [x509.UniformResourceIdentifier(each) for each in uris]
        return self._issue(f"node-{node_id}", names, _SIGNS, now, days)

    def issue_client(self, name: str, now: datetime.datetime, days: int) -> Issued:
        """A certificate for a client, whose principal is `User:CN=NAME`. Raises CertificateError."""
        return self._issue(name, [], (ExtendedKeyUsageOID.CLIENT_AUTH,), now, days)

    def _issue(
        self,
        common_name: str,
        names: Sequence[x509.GeneralName],
        usages: Sequence[x509.ObjectIdentifier],
        now: datetime.datetime,
        days: int,
    ) -> Issued:
        if not 0 < len(common_name) <= MAX_NAME:
            raise CertificateError(f"{common_name!r}: a name has 1 to {MAX_NAME} characters")
        ends = (now + datetime.timedelta(days=days)).replace(microsecond=0)  # as the CA's own
        if ends > self.certificate.not_valid_after_utc:
            end = self.certificate.not_valid_after_utc.isoformat(" ", "minutes")
            raise CertificateError(
                f"the CA ends at {end}, before the {days} days of a new certificate: fewer days, or a new CA "
                "(`lockstep certs new-ca`)"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        number = x509.random_serial_number()
        builder = (
            _builder(subject, self.certificate.subject, key, now, ends, number)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(issuer_id, critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Issued(_key_pem(key), builder.sign(self._key, hashes.SHA256()))


def host_name(text: str) -> x509.GeneralName:
    """A host or an address as a name in a certificate. Raises CertificateError."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if not _HOST.fullmatch(text):
        raise CertificateError(f"{text!r} is neither a host name nor an address")
    return x509.DNSName(text)


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """The hosts and addresses in a node's certificate."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    return [*names.get_values_for_type(x509.DNSName), *map(str, addresses)]


def identity_in(certificate: x509.Certificate) -> PeerIdentity:
    """The node that a certificate is of. Raises NoPeerIdentity."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise NoPeerIdentity("its certificate is of no node: it has no alternative names") from None
    return parse_identity(names.get_values_for_type(x509.UniformResourceIdentifier))


def node_of(certificate: x509.Certificate) -> PeerIdentity | None:
    """The node that a certificate is of; None for a client's."""
    try:
        return identity_in(certificate)
    except NoPeerIdentity:
        return None


def is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Returns whether `issuer` has signed a certificate, or is that certificate."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return certificate == issuer
    return True


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    ends: datetime.datetime,
    number: int,
) -> x509.CertificateBuilder:
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(number)
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(ends)
        .add_extension(key_id, critical=False)
    )


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
