"""The settings of the metrics listener: a part of `config.Settings`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from lockstep.broker.settings.addresses import Listener, parse_host_port
from lockstep.broker.settings.properties import ConfigError, Kind, setting

METRICS: Final = "METRICS"
"""The name of that listener, in settings of its own."""
PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"


@dataclass(frozen=True)
class MetricsSettings:
    """The listener of metrics and health."""

    lockstep_metrics_listener: str = setting(
        "lockstep.metrics.listener",
        Kind.STRING,
        "",
        "HOST:PORT of metrics and health over HTTP; empty: none. Without a token or client certificates "
        "whoever reaches it may read them.",
    )
    lockstep_metrics_security_protocol: str = setting(
        "lockstep.metrics.security.protocol",
        Kind.STRING,
        PLAINTEXT,
        "SSL: metrics over HTTPS, by the `ssl.` settings, or those of this listener alone, "
        "`listener.name.metrics.ssl.`.",
        choices=(PLAINTEXT, SSL),
    )
    lockstep_metrics_token: str | None = setting(
        "lockstep.metrics.token",
        Kind.PASSWORD,
        None,
        "What a client of the metrics has to send: `Authorization: Bearer TOKEN`. Empty: nothing.",
    )

    def metrics_listener(self) -> Listener | None:
        """That address; None where nothing is to be served. Raises ConfigError, also for a token that no HTTP
        header can have."""
        if not (self.lockstep_metrics_token or "").isascii():
            raise ConfigError("lockstep.metrics.token", "[hidden]", "a token has ASCII characters only")
        text = self.lockstep_metrics_listener
        return replace(parse_host_port(text, "lockstep.metrics.listener"), name=METRICS) if text else None
