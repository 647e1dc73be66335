"""Setting names in a properties file that neither Lockstep nor Kafka 4.4.0 acts on, and misspelt names.

Pure. Owns: Kafka's former names and their replacements, why families of names have no effect here, and when
an unknown name counts as misspelt. Kafka ignores unknown names, so files carry those of distributions, of
clients, of plug-ins and of older versions. Invariant: an unknown name counts as misspelt if it is similar to
one that has an effect here, or begins with `lockstep.`.
Does not: know which names have an effect (`config.py` does).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

OWN_PREFIX: Final = "lockstep."
PROVIDERS: Final = "config.providers"
"""Kafka's setting, and the prefix of its providers' own settings (`config_providers.py`)."""
MISSPELT_RATIO: Final = 0.82
"""difflib's similarity ratio from which a name counts as misspelt: two wrong characters of twelve, or a
topic's name for the broker's with `log.` before it. Of Kafka 4.4.0's client settings only those below reach
it."""
HINT_RATIO: Final = 0.75

_REMOVED: Final = """
auto.include.jmx.reporter broker.id.generation.enable control.plane.listener.name
delegation.token.master.key eligible.leader.replicas.enable group.coordinator.new.enable group.share.enable
group.share.max.groups inter.broker.protocol.version leader.imbalance.per.broker.percentage
log.message.downconversion.enable log.message.format.version
password.encoder.cipher.algorithm password.encoder.iterations
password.encoder.key.length password.encoder.keyfactory.algorithm password.encoder.old.secret
password.encoder.secret quota.consumer.default quota.producer.default replica.lag.max.messages
reserved.broker.max.id unstable.metadata.versions.enable
"""
"""Kafka's former names that no other setting replaced."""
_OF_CLIENTS: Final = "fetch.min.bytes receive.buffer.bytes send.buffer.bytes transaction.timeout.ms"
"""Client settings whose names are similar to broker settings'."""
_REPLACED: Final[Mapping[str, str]] = {
    "advertised.host.name": "replaced by advertised.listeners",
    "advertised.port": "replaced by advertised.listeners",
    "host.name": "replaced by listeners",
    "log.message.timestamp.difference.max.ms": "replaced by log.message.timestamp.before.max.ms "
    "and .after.max.ms",
    "port": "replaced by listeners",
}
"""Kafka's former names that another setting replaced."""
FORMER_NAMES: Final = frozenset({*_REMOVED.split(), *_OF_CLIENTS.split(), *_REPLACED})

_FAMILIES: Final[Mapping[str, str]] = {
    "zookeeper.": "there is no ZooKeeper",
}
"""A name, or its prefix -> why it has no effect here."""


def is_misspelled(name: str, known: Collection[str]) -> bool:
    """True if an unknown name counts as a misspelling of one of `known`, the names that have an effect."""
    if name in FORMER_NAMES:
        return False
    return name.lower().startswith(OWN_PREFIX) or bool(_close_matches(name, known, MISSPELT_RATIO, 1))


def hint(name: str, known: Collection[str]) -> str:
    """The end of an error text: the `known` names that are most similar; empty for none."""
    matches = _close_matches(name, known, HINT_RATIO, 3)
    return f"; did you mean {' or '.join(matches)}?" if matches else ""


def _close_matches(name: str, known: Collection[str], ratio: float, count: int) -> list[str]:
    written = name.lower().replace("_", ".").replace("-", ".")
    return difflib.get_close_matches(written, known, n=count, cutoff=ratio)


def unused_names_warning(names: Iterable[str]) -> str:
    """The warning of a start that names all settings without effect, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for name in names:
        by_reason.setdefault(_reason(name), []).append(name)
    plain = by_reason.pop("", [])
    grouped = [f"{', '.join(each)} ({reason})" for reason, each in by_reason.items()]
    return f"without effect here: {', '.join([*plain, *grouped])}"


def _reason(name: str) -> str:
    bare = name.split(".", 3)[-1] if name.startswith("listener.name.") else name
    family = next((each for each in _FAMILIES if bare == each or (bare + ".").startswith(each)), "")
    return _REPLACED.get(name) or _FAMILIES.get(family, "")
