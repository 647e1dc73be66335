"""Names in a properties file that neither Lockstep nor Kafka 4.4.0 acts on, and names written wrongly.

Pure. Owns: Kafka's former names with what took their place, what is said of families of names, and when an
unknown name is taken for a mistake. Kafka ignores names that it does not know, so files carry them: names of
distributions, of clients, of plug-ins, of older versions. Invariant: an unknown name that is like one that
has an effect here is a mistake, whoever wrote it, and so is one that begins like Lockstep's own.
Does not: know which names have an effect (`config.py` does).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

OWN_PREFIX: Final = "lockstep."
PROVIDERS: Final = "config.providers"
"""Kafka's setting, and what its providers' settings begin with (`config_providers.py`)."""
LIKENESS: Final = 0.82
"""Of difflib: two slips in a name of twelve characters, or a topic's name where the broker's has `log.`
before it. Of the names that Kafka 4.4.0's clients have, only those below are so like one with an effect."""
HINT_LIKENESS: Final = 0.75

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
"""Without effect in Kafka 4.4.0, too."""
_OF_CLIENTS: Final = "fetch.min.bytes receive.buffer.bytes send.buffer.bytes transaction.timeout.ms"
"""Clients' names that are like brokers'."""
_INSTEAD: Final[Mapping[str, str]] = {
    "advertised.host.name": "advertised.listeners took its place",
    "advertised.port": "advertised.listeners took its place",
    "host.name": "listeners took its place",
    "log.message.timestamp.difference.max.ms": "log.message.timestamp.before.max.ms and .after.max.ms "
    "took its place",
    "port": "listeners took its place",
}
"""Kafka's former names that had a meaning which another setting has now."""
FORMER_NAMES: Final = frozenset({*_REMOVED.split(), *_OF_CLIENTS.split(), *_INSTEAD})

_FAMILIES: Final[Mapping[str, str]] = {
    "allow.everyone.if.no.acl.found": "there is no access control",
    "sasl.": "there is no SASL",
    "ssl.": "there is no TLS",
    "super.users": "there is no access control",
    "zookeeper.": "there is no ZooKeeper",
}
"""What a name is, or begins with, and why it has no effect."""


def is_mistake(name: str, known: Collection[str]) -> bool:
    """Whether an unknown name was meant to be one of `known`, the names that have an effect."""
    if name in FORMER_NAMES:
        return False
    return name.lower().startswith(OWN_PREFIX) or bool(_like(name, known, LIKENESS, 1))


def hint(name: str, known: Collection[str]) -> str:
    """The end of a refusal: the names that may have been meant."""
    near = _like(name, known, HINT_LIKENESS, 3)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _like(name: str, known: Collection[str], likeness: float, most: int) -> list[str]:
    written = name.lower().replace("_", ".").replace("-", ".")
    return difflib.get_close_matches(written, known, n=most, cutoff=likeness)


def said_of(names: Iterable[str]) -> str:
    """One line for all names of a start that have no effect, those with one reason together."""
    by_reason: dict[str, list[str]] = {}
    for name in names:
        by_reason.setdefault(_reason(name), []).append(name)
    plain = by_reason.pop("", [])
    told = [f"{', '.join(each)} ({reason})" for reason, each in by_reason.items()]
    return f"without effect here: {', '.join([*plain, *told])}"


def _reason(name: str) -> str:
    bare = name.split(".", 3)[-1] if name.startswith("listener.name.") else name
    family = next((each for each in _FAMILIES if bare == each or (bare + ".").startswith(each)), "")
    return _INSTEAD.get(name) or _FAMILIES.get(family, "")
