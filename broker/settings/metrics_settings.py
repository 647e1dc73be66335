"""The setting of the metrics listener: a part of `config.Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.broker.settings.addresses import Listener, parse_host_port
from lockstep.broker.settings.properties import Kind, setting


@dataclass(frozen=True)
class MetricsSettings:
    """The listener of metrics and health."""

    lockstep_metrics_listener: str = setting(
        "lockstep.metrics.listener",
        Kind.STRING,
        "",
        "HOST:PORT of metrics and health over HTTP; empty: none. Whoever reaches it may read them.",
    )

    def metrics_listener(self) -> Listener | None:
        """That address; None where nothing is to be served. Raises ConfigError."""
        text = self.lockstep_metrics_listener
        return parse_host_port(text, "lockstep.metrics.listener") if text else None
