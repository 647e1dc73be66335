"""A broker with listeners of every kind, and the properties by which our own clients reach them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

from compat_tests import fork_server
from compat_tests.probe import HOST, free_port
from compat_tests.targets import LockstepTarget
from lockstep.broker.security.sasl_listener import PLAIN_MODULE, SCRAM_MODULE
from tests.support.certificates import SelfSignedCa
from tests.support.tokens import AUDIENCE, ISSUER, claims, jwks, signed

USERS: Final = {
    "PLAIN": ("alice", "secret"),
    "SCRAM-SHA-256": ("bob", "pa,ss=1"),
    "SCRAM-SHA-512": ("carol", "pa55word"),
}
AUTHORITY, FOREIGN = SelfSignedCa(), SelfSignedCa("Foreign")
SESSION_MS: Final = 1_500
"""How long a login lasts on the listener SHORT."""
_KINDS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "TLS": "SSL",
    "CERTIFIED": "SSL",
    "LOGIN": "SASL_SSL",
    "SHORT": "SASL_SSL",
    "BARE": "SASL_PLAINTEXT",
    "STRICT": "SASL_SSL",
    "RENAMED": "SSL",
}


class SecuredTarget(LockstepTarget):
    """A broker with eight listeners: for its probe, with TLS, with client certificates, with logins in TLS,
    the same for short sessions, with logins without TLS, by one mechanism only, with a certificate of another
    name."""

    def __init__(self, directory: Path, authority: SelfSignedCa = AUTHORITY) -> None:
        super().__init__(directory=directory)
        found = [free_port() for _ in range(len(_KINDS) - 1)]
        self.tls, self.certified, self.login, self.short, self.bare, self.strict, self.renamed = found
        store = authority.issue("broker").write_pem(directory / "broker.pem")
        trusted = authority.write_pem(directory / "ca.pem")
        keys = directory / "jwks.json"
        keys.write_text(json.dumps(jwks()))
        renamed = authority.issue("broker", names=("broker.example",)).write_pem(directory / "renamed.pem")
        ports = dict(zip(_KINDS, (self.port, *found), strict=True))
        plain = f'{PLAIN_MODULE} required user_alice="secret";'
        self.settings |= {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in _KINDS.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
            "listener.name.certified.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join((*USERS, "OAUTHBEARER")),
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "lockstep.sasl.oauthbearer.allowed.urls": keys.as_uri(),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "delegation.token.secret.key": "a key of the tests",
            "listener.name.strict.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.renamed.ssl.keystore.location": str(renamed),
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
            **{f"listener.name.{name}.plain.sasl.jaas.config": plain for name in ("login", "short", "bare")},
        }

    def _command(self) -> list[str]:
        sets = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
        return [*self._program, "serve", "--data-dir", str(self.data_dir), *sets]

    def add_users(self) -> None:
        for mechanism, (user, password) in USERS.items():
            if mechanism != "PLAIN":
                words = ["users", "set", user, "--mechanism", mechanism, "-b", self.bootstrap]
                done = fork_server.run([*self._program, *words], given=password.encode(), timeout_s=60)
                assert done.returncode == 0, done.stderr

    # --- properties of our own clients --------------------------------------------------------------------

    def trusting(self) -> dict[str, str]:
        """TLS."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.settings["ssl.truststore.location"],
        }

    def logging_in(self, mechanism: str = "SCRAM-SHA-512", password: str = "") -> dict[str, str]:
        """TLS and a login by user and password."""
        user, right = USERS[mechanism]
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        return {
            **self.trusting(),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="{user}" password="{password or right}";',
        }

    def with_token(self, path: Path, **changed: object) -> dict[str, str]:
        """TLS and a login by a token in a file."""
        path.write_text(signed(claims(int(time.time()), **changed)))
        return {
            **self.trusting(),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
        }

    def certified_as(self, path: Path, authority: SelfSignedCa = AUTHORITY) -> dict[str, str]:
        """TLS with a certificate of the client's own."""
        store = authority.issue("alice", names=()).write_pem(path)
        return {**self.trusting(), "ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
