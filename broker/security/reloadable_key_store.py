"""Keys and certificates of one listener, which are read again when their files or settings change.

Owns: `ReloadableKeyStore`, the base of what has contexts of TLS made of them. Invariants: a change that
cannot be used leaves the former contexts, with a line in the log, and is tried again after each RETRY_PAUSE;
private keys are in no file but the operator's own.
Does not: decide what a context allows.
"""

from __future__ import annotations

import datetime
import logging
import os
import ssl
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lockstep.broker.security.distinguished_name import distinguished_name
from lockstep.broker.security.key_store import KeyStore, store_files
from lockstep.broker.settings.properties import ConfigError
from lockstep.broker.settings.security_settings import ListenerSecurity

log = logging.getLogger("lockstep.security")

EXPIRY_WARNING: Final = datetime.timedelta(days=30)
RETRY_PAUSE: Final = datetime.timedelta(minutes=1)
"""Until files that could not be used are read again though they are the same: a certificate's time may have
come since."""

FileStates = tuple[tuple[int, int, int, int] | None, ...]
"""Times of content and of permissions, size and inode of files; None for one that is not there."""
Contexts = tuple[ssl.SSLContext, ...]


class ReloadableKeyStore(ABC):
    """See the module. Raises ConfigError for settings that cannot be used. Args: now: with its zone."""

    others = "clients"
    """The connecting side, in words."""

    def __init__(self, security: ListenerSecurity, now: Callable[[], datetime.datetime]) -> None:
        self.name = security.listener_name
        self._security, self._now = security, now
        self._files = _file_states(security)
        self._failed: FileStates | None = None
        """The files that could not be used, if the last ones could not."""
        self._failed_at, self._failure = now(), ""
        self._keys, self._contexts = self._read(security)

    @property
    def expiry_warnings(self) -> list[str]:
        """Lines for the log: the own certificate, and each trusted one, that ends soon or has ended."""
        latest = self._now() + EXPIRY_WARNING
        lines = []
        if self._keys.expires <= latest:
            lines.append(
                f"the certificate of listener {self.name} expires at {_minutes(self._keys.expires)}: "
                f"{self.others} reject it from then on"
            )
        for each in _trusted_authorities(self._contexts[0]):
            if each.not_valid_after_utc <= latest:
                subject = distinguished_name(each.subject.public_bytes())
                lines.append(
                    f"the certificate of {subject}, which listener {self.name} trusts, expires at "
                    f"{_minutes(each.not_valid_after_utc)}: it does not certify {self.others} from then on"
                )
        return lines

    @abstractmethod
    def _read(self, security: ListenerSecurity) -> tuple[KeyStore, Contexts]:
        """Read keys, and make contexts of them. Raises ConfigError."""

    @abstractmethod
    def _check_successor(self, security: ListenerSecurity, new: KeyStore) -> None:
        """Raises ConfigError if new keys may not replace those that are here while the broker runs."""

    def check(self, security: ListenerSecurity) -> tuple[KeyStore, Contexts]:
        """The next keys and contexts, by these settings. Raises ConfigError where they cannot be used."""
        keys, contexts = self._read(security)
        self._check_successor(security, keys)
        return keys, contexts

    def reload_changed(self) -> None:
        """Take over files that have changed since they were read."""
        states, now = _file_states(self._security), self._now()
        if states == self._files:
            return
        if states != self._failed:
            self._failure = ""
        elif datetime.timedelta(0) <= now - self._failed_at < RETRY_PAUSE:
            return
        self._failed, self._failed_at = states, now
        self._take_over(self._security, states)

    def reload(self, security: ListenerSecurity) -> None:
        """Read keys and certificates again, by settings that may have changed."""
        self._failure = ""
        self._take_over(security, _file_states(security))

    def _take_over(self, security: ListenerSecurity, states: FileStates) -> None:
        """Replace the contexts where that is possible; the same failure is logged once."""
        try:
            keys, contexts = self.check(security)
        except ConfigError as error:
            if str(error) != self._failure:
                log.error("listener %s keeps its former keys and certificates: %s", self.name, error)
            self._failure = str(error)
            return
        self._security, self._keys, self._contexts, self._files = security, keys, contexts, states
        self._failed, self._failure = None, ""
        log.info(
            "listener %s: keys and certificates read again, valid until %s", self.name, _minutes(keys.expires)
        )
        for line in self.expiry_warnings:
            log.warning("%s", line)


def _minutes(moment: datetime.datetime) -> str:
    return moment.isoformat(" ", "minutes")


def _trusted_authorities(context: ssl.SSLContext) -> list[x509.Certificate]:
    """The certificate authorities that a context trusts."""
    return [x509.load_der_x509_certificate(each) for each in context.get_ca_certs(binary_form=True)]


def load_key(context: ssl.SSLContext, security: ListenerSecurity, keys: KeyStore) -> None:
    """Give a context its key and certificates. Raises ConfigError."""
    with _private_file(keys.key_pem + keys.chain_pem) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            problem = f"OpenSSL rejects the certificate: {error.reason or error}"
            raise security.error("ssl.keystore.location", problem) from None


def trust(context: ssl.SSLContext, trusted: tuple[x509.Certificate, ...]) -> None:
    """Have a context accept certificates that these have signed, or that are among these."""
    context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in trusted))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _file_states(security: ListenerSecurity) -> FileStates:
    states: list[tuple[int, int, int, int] | None] = []
    for path in store_files(security):
        try:
            found = path.stat()
        except OSError:
            states.append(None)
        else:
            states.append((found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino))
    return tuple(states)


@contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    """A file that OpenSSL reads once: in memory where the system has such files, else one of this user."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("lockstep-key")
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # its mode is 0600
        file.write(data)
        file.flush()
        yield file.name
