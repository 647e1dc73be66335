"""The settings of delegation tokens: a part of `config.Settings`.

Kafka's names and defaults (DelegationTokenManagerConfigs, KIP-48).
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.broker.settings.properties import Kind, setting


@dataclass(frozen=True)
class DelegationTokenSettings:
    """The secret of delegation tokens, and their lifetimes."""

    delegation_token_secret_key: str | None = setting(
        "delegation.token.secret.key",
        Kind.PASSWORD,
        None,
        "The secret that delegation tokens are made from; without it there are none. The same on all nodes: "
        "where it changes, all tokens become invalid.",
    )
    delegation_token_max_lifetime_ms: int = setting(
        "delegation.token.max.lifetime.ms",
        Kind.LONG,
        604_800_000,
        "Longest life of a delegation token, after which it cannot be renewed.",
        minimum=1,
    )
    delegation_token_expiry_time_ms: int = setting(
        "delegation.token.expiry.time.ms",
        Kind.LONG,
        86_400_000,
        "How long a delegation token is valid until it is renewed.",
        minimum=1,
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        "delegation.token.expiry.check.interval.ms",
        Kind.LONG,
        3_600_000,
        "Between two removals of expired delegation tokens.",
        minimum=1,
    )
