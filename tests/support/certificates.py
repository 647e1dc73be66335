"""Certificates for tests: an authority, and what it issues, in the forms that brokers and clients read."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)


class Issued:
    """A certificate with its key, and those of its issuers."""

    def __init__(
        self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, issuers: list[x509.Certificate]
    ) -> None:
        self.key, self.certificate, self.issuers = key, certificate, issuers

    def key_pem(self, password: bytes | None = None) -> str:
        kind: KeySerializationEncryption = BestAvailableEncryption(password) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, kind).decode()

    def chain_pem(self) -> str:
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in (self.certificate, *self.issuers))

    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def write_pem(self, path: Path, password: bytes | None = None) -> Path:
        """One file with the key and the certificates, as a key store."""
        path.write_text(self.key_pem(password) + self.chain_pem())
        return path

    def write_pkcs12(self, path: Path, password: bytes) -> Path:
        data = pkcs12.serialize_key_and_certificates(
            b"broker", self.key, self.certificate, self.issuers, BestAvailableEncryption(password)
        )
        path.write_bytes(data)
        return path


class SelfSignedCa:
    """A private authority, with a root that tests trust."""

    def __init__(self, name: str = "Test Root", ends: datetime.datetime = NOW + 3650 * DAY) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        key_usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        self.certificate = (
            _builder(self.subject, self.subject, self.key, NOW - DAY, ends)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(key_usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write_pem(self, path: Path) -> Path:
        path.write_text(self.pem())
        return path

    def write_pkcs12(self, path: Path, password: bytes) -> Path:
        """A store of trusted certificates."""
        trusted = pkcs12.PKCS12Certificate(self.certificate, b"root")
        path.write_bytes(pkcs12.serialize_java_truststore([trusted], BestAvailableEncryption(password)))
        return path

    def issue(
        self,
        common_name: str = "localhost",
        *,
        names: tuple[str, ...] = ("localhost", "127.0.0.1"),
        organization: str | None = None,
        begins: datetime.datetime = NOW - DAY,
        ends: datetime.datetime = NOW + 365 * DAY,
    ) -> Issued:
        """A certificate for a broker or a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization is not None:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (
            _builder(x509.Name(attributes), self.subject, key, begins, ends)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(issuer_id, critical=False)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False
            )
        return Issued(key, builder.sign(self.key, hashes.SHA256()), [self.certificate])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begins: datetime.datetime,
    ends: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.UniformResourceIdentifier(name) if ":" in name else x509.DNSName(name)
