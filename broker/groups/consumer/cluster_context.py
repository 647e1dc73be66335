"""The cluster around consumer groups: its topics, the broker's settings in force and each group's own.

Owns: `ClusterContext`, which finds the value of a group's setting: its own configuration, else the broker's.
Does not: store or check configurations (`broker/settings/group_config.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lockstep.broker.groups.consumer.subscribed_topics import TopicDescriber, TopicView
from lockstep.broker.settings.config import Settings

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"
PROTOCOL: Final = "consumer"


class ClusterContext:
    """The topics and settings that a coordinator looks up for each request.

    Args:
        settings: the broker's settings in force.
        configs: the configurations that a group has of its own, by name.
        changes: the number of changes of the metadata.
        version: the version of the metadata, which regular expressions are recorded with.
    """

    __slots__ = ("_configs", "_settings", "changes", "topics", "version")

    def __init__(
        self,
        topics: TopicDescriber,
        settings: Callable[[], Settings],
        configs: Callable[[str], Mapping[str, str]],
        changes: Callable[[], int],
        version: Callable[[], int],
    ) -> None:
        self.topics = topics
        self._settings = settings
        self._configs = configs
        self.changes = changes
        self.version = version

    @property
    def is_enabled(self) -> bool:
        """Returns whether the consumer protocol is among the broker's."""
        return PROTOCOL in self._settings().group_coordinator_rebalance_protocols

    @property
    def max_size(self) -> int:
        """The largest number of members of a group."""
        return self._settings().group_consumer_max_size

    @property
    def assignors(self) -> Sequence[str]:
        """The names of the assignors that members may request, the default first."""
        return self._settings().consumer_assignors

    @property
    def regex_refresh_interval_ms(self) -> int:
        """The longest time between two evaluations of a group's regular expressions."""
        return self._settings().group_consumer_regex_refresh_interval_ms

    def session_timeout_ms(self, group_id: str) -> int:
        """The time after which a silent member is removed."""
        return self._value(group_id, SESSION_TIMEOUT, self._settings().group_consumer_session_timeout_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """The time between two heartbeats of a member."""
        return self._value(
            group_id, HEARTBEAT_INTERVAL, self._settings().group_consumer_heartbeat_interval_ms
        )

    def assignment_interval_ms(self, group_id: str) -> int:
        """The least time between two assignments of a group."""
        return self._value(
            group_id, ASSIGNMENT_INTERVAL, self._settings().group_consumer_assignment_interval_ms
        )

    def _value(self, group_id: str, name: str, default: int) -> int:
        """The group's own value of a setting, else the broker's."""
        return int(self._configs(group_id).get(name, default))


class _NoTopics:
    """A cluster without topics."""

    def topic(self, name: str | None) -> None:
        return None

    def topic_by_id(self, topic_id: bytes) -> None:
        return None

    def topics(self) -> list[TopicView]:
        return []


def context_of_settings(settings: Settings) -> ClusterContext:
    """The context of a coordinator whose cluster has no topics, and settings that do not change."""
    return ClusterContext(_NoTopics(), lambda: settings, lambda group_id: {}, lambda: 0, lambda: 0)
