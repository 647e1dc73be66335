"""Topic names and partition counts, reserved from the request until the topic is visible or has failed.

Owns: which names are in use, and how many partitions are reserved beside those that exist. Does not: know
which states a topic passes through (`topics.py`), or validate anything else of a new topic
(`broker/metadata/topic_validation.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.topic_validation import check_not_reserved, collision_key
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode


class TopicReservations:
    """See the module."""

    __slots__ = ("_cluster", "_names", "_reserved_partitions")

    def __init__(self, cluster: MetadataCache) -> None:
        self._cluster = cluster
        self._names: dict[str, str] = {}
        """`collision_key` -> the name itself."""
        self._reserved_partitions = 0

    def replace_names(self, names: Iterable[str]) -> None:
        """The names in use, as a new controller finds them."""
        self._names = {collision_key(name): name for name in names}

    def check_name(self, name: str) -> None:
        """Raises RequestError for a name that is in use, collides with one, or is reserved."""
        existing = self._names.get(collision_key(name))
        if existing == name:
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        check_not_reserved(name)
        if existing is not None:
            raise RequestError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {existing}",
            )

    def check_partitions(self, added: int) -> None:
        """Raises RequestError if `added` more partitions would exceed lockstep.max.partitions."""
        total = self._cluster.partition_count + self._reserved_partitions + added
        limit = self._cluster.settings.lockstep_max_partitions
        if total > limit:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"{total} partitions on this broker; lockstep.max.partitions is {limit}",
            )

    def reserve_name(self, name: str) -> None:
        """The name is in use from now on."""
        self._names[collision_key(name)] = name

    def release_name(self, name: str) -> None:
        """The name is free again, unless another that collides with it took its place."""
        if self._names.get(collision_key(name)) == name:
            del self._names[collision_key(name)]

    def reserve_partitions(self, count: int) -> None:
        """Reserves partitions that are about to be opened."""
        self._reserved_partitions += count

    def release_partitions(self, count: int) -> None:
        """Releases reserved partitions, which exist now or never will."""
        self._reserved_partitions -= count
