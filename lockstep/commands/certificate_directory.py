"""A cluster's CA and its certificates, as the files of one directory.

A directory has `ca.pem` (the CAs that are trusted, the one that issues first), `ca.key`, and a file with key
and certificate for each node (`node-1.pem`) and client (`alice.pem`). Invariants: a file is replaced as a
whole, so that a broker that reads it meanwhile reads the old file or the new one; private keys are readable
by their owner alone; what a crash leaves between two files can be continued. Every failure is a
CommandFailed. Does not: know the command line or print (`certs`), or what a certificate looks like
(`lockstep.broker.security.certificate_authority`).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lockstep.broker.security.certificate_authority import CertificateAuthority, CertificateError, Issued
from lockstep.failures import CommandFailed, os_error

CA_CERTIFICATES: Final = "ca.pem"
CA_KEY: Final = "ca.key"
PRIVATE: Final = 0o600
PUBLIC: Final = 0o644


class CertificateDirectory:
    """See the module."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ca_certificates, self.ca_key = path / CA_CERTIFICATES, path / CA_KEY

    def file_of(self, name: str) -> Path:
        """The file of a node or client."""
        return self.path / f"{name}.pem"

    # --- reading ------------------------------------------------------------------------------------------

    def issuing_ca(self) -> CertificateAuthority:
        """The CA that issues certificates."""
        try:
            return CertificateAuthority.load(self._read(self.ca_key), self._read(self.ca_certificates))
        except CertificateError as error:
            raise CommandFailed(f"{self.path}: {error}") from None

    def trusted_cas(self) -> list[x509.Certificate]:
        """The CAs that are trusted."""
        return self._load(self.ca_certificates)

    def certificates(self) -> dict[str, x509.Certificate]:
        """The certificates of nodes and clients, by the names of their files; nodes first, by number."""
        names = [path.stem for path in self.path.glob("*.pem") if path.name != CA_CERTIFICATES]
        names.sort(key=lambda name: (0, len(name), name) if name.startswith("node-") else (1, 0, name))
        return {name: self._load(self.file_of(name))[0] for name in names}

    def check_no_ca(self) -> None:
        """Raises CommandFailed if there is a CA. A key alone, as a crash leaves it, has signed nothing."""
        try:
            is_there = self.ca_certificates.exists()
        except OSError as error:
            raise os_error(error) from error
        if is_there:
            raise CommandFailed(
                f"{self.ca_certificates} is there already: `lockstep certs add` makes more certificates, "
                "`lockstep certs renew` new ones, and --directory names another place"
            )
        if self.ca_key.exists() and (issued := sorted(self.path.glob("*.pem"))):
            raise CommandFailed(
                f"{self.ca_certificates} is missing, and {issued[0]} may be of its CA: bring it back, or "
                "--directory names another place"
            )

    def check_new(self, names: Iterable[str]) -> None:
        """Raises CommandFailed if one of these nodes or clients has a file."""
        for name in names:
            if (path := self.file_of(name)).exists():
                raise CommandFailed(f"{path} is there already: `lockstep certs renew {name}` replaces it")

    # --- writing ------------------------------------------------------------------------------------------

    def create(self, ca: CertificateAuthority) -> None:
        """Make the directory with its CA."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise os_error(error) from None
        # In this order: a crash leaves a key that has signed nothing, which the next `create` replaces, or
        # a CA without the certificates that `add` makes.
        write_file(self.ca_key, ca.key_pem, PRIVATE)
        self.trust(ca)

    def replace_ca(self, ca: CertificateAuthority, former: CertificateAuthority) -> None:
        """Makes a new CA issue the certificates; both are trusted."""
        # In this order: what a crash between them leaves is the former CA, and one more that is trusted.
        self.trust(ca, former)
        write_file(self.ca_key, ca.key_pem, PRIVATE)

    def trust(self, *cas: CertificateAuthority) -> None:
        """Replaces the trusted CAs by these."""
        data = b"".join(each.certificate.public_bytes(Encoding.PEM) for each in cas)
        write_file(self.ca_certificates, data, PUBLIC)

    def write(self, name: str, issued: Issued) -> None:
        """Write a node's or client's key and certificate, in place of those that are there."""
        write_file(self.file_of(name), issued.key_pem + issued.certificate_pem, PRIVATE)

    # --- private ------------------------------------------------------------------------------------------

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            if path == self.ca_key and self.ca_certificates.exists():
                remedy = f"bring it back, the key of {self.ca_certificates}"
            else:
                remedy = "`lockstep certs create` makes a CA"
            raise CommandFailed(f"{path} is not there: {remedy}") from None
        except OSError as error:
            raise os_error(error) from None

    def _load(self, path: Path) -> list[x509.Certificate]:
        try:
            return x509.load_pem_x509_certificates(self._read(path))
        except ValueError:
            raise CommandFailed(f"{path} has no certificate that can be read") from None


def write_file(path: Path, data: bytes, mode: int) -> None:
    """Write a file as a whole, in place of the one that is there."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # its mode is 0600
    except OSError as error:
        raise os_error(error) from None
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise os_error(error) from None
        raise
