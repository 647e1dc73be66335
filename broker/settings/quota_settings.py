"""The settings of client quotas: a part of `config.Settings`. Kafka's names and defaults (QuotaConfig)."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.broker.settings.properties import Kind, setting


@dataclass(frozen=True)
class QuotaSettings:
    """The windows in which a client's use is counted; quotas themselves are no settings."""

    quota_window_num: int = setting(
        "quota.window.num",
        Kind.INT,
        11,
        "Samples in which a client's use is kept for its quota; together they are the window of the rate.",
        minimum=1,
        unit="samples",
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds",
        Kind.INT,
        1,
        "Time of one such sample, and the longest wait by request_percentage and connection_creation_rate.",
        minimum=1,
        unit="seconds",
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        Kind.INT,
        11,
        "Samples of the window of controller_mutation_rate: changes of so long may come at once.",
        minimum=1,
        unit="samples",
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds",
        Kind.INT,
        1,
        "Time of one such sample.",
        minimum=1,
        unit="seconds",
    )
