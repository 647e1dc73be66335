"""Dynamic broker settings of Kafka 4.4.0 that have no effect here: they are checked, stored and described.

Pure. Owns: their types and bounds as Kafka has them, and which of them are per-broker settings. In a
properties file each of these warns; a change while running is stored and warned of, too, so that a tool that
sets several is not rejected for one of them. Does not: know what is stored
(`broker/metadata/metadata_image.py` does). Source: Kafka's DynamicBrokerConfig.dynamicConfigUpdateModes and
KafkaConfig's definitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lockstep.broker.settings.properties import Kind, Property

_DOC: Final = "Without effect here."
_BY_TYPE: Final[tuple[tuple[Kind, int | None, str], ...]] = (
    (
        Kind.BOOLEAN,
        None,
        "errors.deadletterqueue.auto.create.topics.enable follower.fetch.last.tiered.offset.enable "
        "group.consumer.assignor.offload.enable group.share.assignor.offload.enable "
        "group.streams.assignor.offload.enable transaction.partition.verification.enable",
    ),
    (Kind.DOUBLE, None, "log.cleaner.io.buffer.load.factor"),
    (
        Kind.INT,
        0,
        "group.share.assignment.interval.ms "
        "group.streams.assignment.interval.ms log.cleaner.io.buffer.size log.cleaner.threads "
        "max.connection.creation.rate",
    ),
    (
        Kind.INT,
        1,
        "background.threads num.io.threads num.network.threads num.recovery.threads.per.data.dir "
        "num.replica.fetchers remote.fetch.max.wait.ms remote.log.manager.copier.thread.pool.size "
        "remote.log.manager.expiration.thread.pool.size remote.log.manager.follower.thread.pool.size "
        "remote.log.reader.threads",
    ),
    (
        Kind.INT,
        524_288,
        "group.coordinator.cached.buffer.max.bytes share.coordinator.cached.buffer.max.bytes",
    ),
    (Kind.LIST, None, "config.providers metric.reporters"),
    (
        Kind.LONG,
        0,
        "follower.replication.throttled.rate leader.replication.throttled.rate "
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ),
    (
        Kind.LONG,
        1,
        "remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes "
        "remote.log.manager.copy.max.bytes.per.second remote.log.manager.fetch.max.bytes.per.second",
    ),
    (Kind.STRING, None, "errors.deadletterqueue.topic.name.prefix max.connections.per.ip.overrides"),
)
_PER_BROKER: Final[tuple[tuple[Kind, int | None, str], ...]] = (
    (Kind.CLASS, None, "principal.builder.class ssl.engine.factory.class"),
    (
        Kind.DOUBLE,
        None,
        "sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor "
        "sasl.login.refresh.window.factor sasl.login.refresh.window.jitter",
    ),
    (
        Kind.LIST,
        None,
        "cordoned.log.dirs sasl.kerberos.principal.to.local.rules",
    ),
    (Kind.LONG, None, "sasl.kerberos.min.time.before.relogin"),
    (Kind.SHORT, None, "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds"),
    (
        Kind.STRING,
        None,
        "sasl.kerberos.kinit.cmd sasl.kerberos.service.name sasl.mechanism.inter.broker.protocol "
        "ssl.endpoint.identification.algorithm ssl.keymanager.algorithm ssl.protocol "
        "ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm",
    ),
)


def _stored_property(table: tuple[tuple[Kind, int | None, str], ...]) -> Iterator[Property]:
    for kind, minimum, names in table:
        for name in names.split():
            yield Property(name, kind, None, _DOC, minimum)


PER_BROKER: Final = {each.name: each for each in _stored_property(_PER_BROKER)}
"""Per-broker settings: Kafka rejects them as a cluster-wide default."""
STORED: Final = {each.name: each for each in _stored_property(_BY_TYPE)} | PER_BROKER
"""Name -> its declaration, without a default, so that only a value that was set is described."""
PER_LISTENER: Final = frozenset(
    {
        "ssl.key.password",
        *(f"ssl.keystore.{each}" for each in ("certificate.chain", "key", "location", "password", "type")),
        *(f"ssl.truststore.{each}" for each in ("certificates", "location", "password", "type")),
    }
)
"""Settings that Kafka takes only with the prefix `listener.name.NAME.`."""
