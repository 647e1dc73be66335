"""The security of this node's listeners: what each encrypts, how clients log in, which nodes are trusted.

Owns: `ListenerSecurities`, which makes the objects of each listener at the start, gives new connections to
them, and takes over changed keys and certificates. Invariant: a listener whose settings cannot be used stops
the start. Does not: bind or accept (`listeners.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from lockstep.broker.network.connection import Connection
from lockstep.broker.network.connection_registry import Connections
from lockstep.broker.network.listeners import host_and_port
from lockstep.broker.network.sasl_connection import SaslConnection
from lockstep.broker.network.tls_connection import TlsConnection
from lockstep.broker.security.sasl_listener import Credentials, SaslListener, TokenLogins
from lockstep.broker.settings.addresses import Listener
from lockstep.broker.settings.config import SASL_PROTOCOLS, TLS_PROTOCOLS, Settings
from lockstep.broker.settings.peer_settings import PEERS_LISTENER
from lockstep.broker.settings.security_settings import listener_prefix

if TYPE_CHECKING:
    from lockstep.broker.security.peer_certificates import PeerCertificates
    from lockstep.broker.security.reloadable_key_store import ReloadableKeyStore
    from lockstep.broker.security.tls_context import TlsListener
    from lockstep.broker.security.token_keys import TokenKeys

log = logging.getLogger("lockstep")

EXPIRY_POLL_INTERVAL_SECONDS: Final = 86_400.0
"""Between two warnings of a certificate that ends soon."""
CERTIFICATE_POLL_INTERVAL_SECONDS: Final = 5.0
"""Interval of the checks whether files of keys and certificates have changed."""
TOKEN_KEYS_POLL_INTERVAL_SECONDS: Final = 1.0
"""Interval of the checks, on a thread, whether keys of tokens have to be read."""
PLAIN: Final = "PLAIN"


class ListenerSecurities:
    """See the module. Args: credentials: of SCRAM users. tokens: logins by delegation tokens."""

    def __init__(self, credentials: Credentials, tokens: TokenLogins) -> None:
        self._credentials, self._tokens = credentials, tokens
        self.tls: dict[Listener, TlsListener] = {}
        """Each encrypted listener."""
        self.peers: PeerCertificates | None = None
        """The replication listener's certificates; None without them."""
        self._sasl: dict[Listener, SaslListener] = {}

    def open_peers(self, settings: Settings, listener: Listener, can_be_reached: bool) -> None:
        """Read the certificates of nodes, with warnings in the log. Raises ConfigError.

        Args: can_be_reached: other machines reach the listener.
        """
        if settings.uses_peer_tls:
            # Here and not above, as for clients.
            from lockstep.broker.security.peer_certificates import PeerCertificates

            security, mode = settings.security_named(PEERS_LISTENER), settings.lockstep_peers_tls
            self.peers = PeerCertificates(security, mode, settings.node_id, lambda: datetime.now(UTC))
            _warn_of_expiry(self.peers)
        if self.peers is not None and not self.peers.accepts_plaintext:
            return
        if can_be_reached or settings.authorizer_class_name:  # without one, any local user may do anything
            log.warning(
                "any process that reaches %s is a node of this cluster: "
                "lockstep.peers.tls=%s needs no certificate",
                host_and_port(listener.host, listener.port),
                settings.lockstep_peers_tls,
            )

    def open(self, settings: Settings, listeners: Iterable[Listener]) -> None:
        """Make the security of listeners, with warnings in the log. Raises ConfigError."""
        for listener in listeners:
            protocol = settings.protocol_of(listener)
            with_sasl = protocol in SASL_PROTOCOLS
            security = settings.security_of(listener)
            if with_sasl:
                sasl = self._sasl[listener] = SaslListener(security, self._credentials, tokens=self._tokens)
                if protocol not in TLS_PROTOCOLS and PLAIN in sasl.mechanisms:
                    log.warning("listener %s: passwords of PLAIN are readable without TLS", listener.name)
            if protocol in TLS_PROTOCOLS:
                self.open_tls(settings, listener, with_sasl)

    def open_tls(self, settings: Settings, listener: Listener, with_sasl: bool = False) -> None:
        """Make the TLS of a listener, with warnings in the log. Raises ConfigError."""
        # Here and not above: the library takes 10 MB, which only who encrypts should pay.
        from lockstep.broker.security.tls_context import TlsListener

        security = settings.security_of(listener)
        tls = self.tls[listener] = TlsListener(security, lambda: datetime.now(UTC), with_sasl)
        _warn_of_expiry(tls)

    def clients_of(self, listener: Listener, address: str) -> str:
        """The clients that a listener serves, in words."""
        tls = self.tls.get(listener)
        if listener in self._sasl:
            return f"any client that logs in at {address}"
        if tls is not None and tls.requires_certificate:
            return f"any client with a trusted certificate that reaches {address}"
        return f"any client that reaches {address}"

    def connection_factory(
        self, connections: Connections, listener: Listener, plain: type[Connection]
    ) -> Callable[[], asyncio.BaseProtocol]:
        """The maker of a listener's connections. Args: plain: the class of those without a login."""
        sasl, tls = self._sasl.get(listener), self.tls.get(listener)
        new_connection: Callable[[], Connection] = partial(plain, connections, listener.name)
        if sasl is not None:
            new_connection = partial(SaslConnection, connections, listener.name, sasl)
        if tls is None:
            return new_connection
        return lambda: TlsConnection(connections, tls, new_connection())

    # --- new keys and certificates ------------------------------------------------------------------------

    def check(self, settings: Settings) -> None:
        """Raises ConfigError for changed keys and certificates that cannot be used."""
        for listener_name, tls in self._find_changed(settings):
            tls.check(settings.security_named(listener_name))

    def reload(self, settings: Settings) -> None:
        """Read keys and certificates again, of which a setting was changed or set again while running."""
        for listener_name, tls in self._find_changed(settings):
            tls.reload(settings.security_named(listener_name))

    async def watch(self) -> None:
        """Read keys and certificates again when their files have changed; warn of those that end soon."""
        clock = asyncio.get_running_loop().time
        warned_at = clock()
        while True:
            await asyncio.sleep(CERTIFICATE_POLL_INTERVAL_SECONDS)
            for tls in self.all_keys:
                await asyncio.to_thread(tls.reload_changed)
            if clock() - warned_at >= EXPIRY_POLL_INTERVAL_SECONDS:
                warned_at = clock()
                for tls in self.all_keys:
                    _warn_of_expiry(tls)

    @property
    def token_keys(self) -> list[TokenKeys]:
        """The keys of tokens of all listeners."""
        return [each.token_keys for each in self._sasl.values() if each.token_keys is not None]

    async def refresh_token_keys(self) -> None:
        """Read keys of tokens at once, and again when it is time."""
        while True:
            for keys in self.token_keys:
                await asyncio.to_thread(keys.refresh)
            await asyncio.sleep(TOKEN_KEYS_POLL_INTERVAL_SECONDS)

    @property
    def all_keys(self) -> list[ReloadableKeyStore]:
        """The keys and certificates of all encrypted listeners."""
        return [*self.tls.values(), *([self.peers] if self.peers is not None else [])]

    def _find_changed(self, settings: Settings) -> list[tuple[str, ReloadableKeyStore]]:
        return [
            (tls.name, tls)
            for tls in self.all_keys
            if any(name.startswith(listener_prefix(tls.name)) for name in settings.dynamic_node)
        ]


def _warn_of_expiry(keys: ReloadableKeyStore) -> None:
    """Log that a certificate ends soon, if it does."""
    for line in keys.expiry_warnings:
        log.warning("%s", line)
