"""The settings of transactions, each with its reason: a part of `config.Settings`.

Kafka's names, defaults and bounds. Source: Kafka's TransactionStateManagerConfig and TransactionLogConfig.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.broker.settings.properties import REPLICAS_ARE_THE_GROUPS, Kind, setting


@dataclass(frozen=True)
class TransactionSettings:
    """Limits and timeouts of transactional ids."""

    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        Kind.INT,
        900_000,
        "Longest transaction timeout of a producer; read_committed consumers wait as long.",
        minimum=1,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        10_000,
        "Interval at which the broker aborts transactions that take longer than their producer's timeout.",
        minimum=1,
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        Kind.INT,
        604_800_000,
        "How long an unused transactional id is kept.",
        minimum=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        3_600_000,
        "Interval at which transactional.id.expiration.ms is enforced.",
        minimum=1,
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        Kind.INT,
        50,
        "Partitions of __transaction_state when it is created.",
        minimum=1,
        unit="partitions",
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        Kind.SHORT,
        1,
        REPLICAS_ARE_THE_GROUPS,
        minimum=1,
        unit="replicas",
    )
    lockstep_staged_timeout_ms: int = setting(
        "lockstep.staged.timeout.ms",
        Kind.INT,
        900_000,
        "How long staged batches stay open without a further batch, a commit or an abort; "
        "read_committed consumers wait as long for those of a dead writer. The default is Kafka's "
        "longest transaction.",
        minimum=1,
    )
