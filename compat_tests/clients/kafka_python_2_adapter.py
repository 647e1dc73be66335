"""What kafka-python 2.x's administration does differently from 3.x's. Runs in a process that has 2.x only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.structs import OffsetAndMetadata

from compat_tests.clients.face import Broker, Cluster, GroupDescription, GroupMember, Refused
from compat_tests.clients.kafka_python import KafkaPython, answered, refuse_class


class KafkaPython2Adapter(KafkaPython):
    cannot: ClassVar[Mapping[str, str]] = {"topic id": ""}
    first_contact_settings: ClassVar[Mapping[str, Any]] = {"api_version_auto_timeout_ms": 2_000}

    # -- groups -----------------------------------------------------------------------------------------

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        wanted = TopicPartition(topic, partition)
        found = answered(self.admin.list_consumer_group_offsets, group, partitions=[wanted])[wanted]
        return None if found.offset < 0 else int(found.offset)

    def groups(self) -> set[str]:
        return {name for name, _ in answered(self.admin.list_consumer_groups)}

    def describe_group(self, group: str) -> GroupDescription:
        (found,) = answered(self.admin.describe_consumer_groups, [group])
        members = tuple(
            GroupMember(each.member_id, each.client_id, each.client_host, _owned(each.member_assignment))
            for each in found.members
        )
        return GroupDescription(found.state.lower(), found.protocol_type, found.protocol, members)

    def delete_group(self, group: str) -> None:
        refuse_class(*(error for _, error in answered(self.admin.delete_consumer_groups, [group])))

    def set_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Its admin cannot, a consumer that names the group and does not join it can."""
        consumer = self._consumer(group_id=group)
        try:
            wanted = TopicPartition(topic, partition)
            consumer.assign([wanted])
            answered(consumer.commit, {wanted: OffsetAndMetadata(offset, "", -1)})
        finally:
            consumer.close()

    # -- administration ---------------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replication_factor: int = 1,
    ) -> None:
        wanted = NewTopic(topic, partitions, replication_factor, topic_configs=dict(configs or {}))
        answered(self.admin.create_topics, [wanted])

    def delete_topic(self, topic: str) -> None:
        answered(self.admin.delete_topics, [topic])

    def partition_count(self, topic: str) -> int:
        (found,) = answered(self.admin.describe_topics, [topic])
        if found["error_code"]:
            raise Refused(found["error_code"])
        return len(found["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        answered(self.admin.create_partitions, {topic: NewPartitions(total)})

    def topic_config(self, topic: str) -> dict[str, str | None]:
        (answer,) = answered(self.admin.describe_configs, [ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((code, text, _, _, entries),) = answer.resources
        if code:
            raise Refused(code, str(text))
        return {entry[0]: entry[1] for entry in entries}

    def cluster(self) -> Cluster:
        answer = self.admin.describe_cluster()
        brokers = tuple(Broker(each["node_id"], each["host"], each["port"]) for each in answer["brokers"])
        return Cluster(brokers, answer["controller_id"], answer["cluster_id"])


def _owned(assignment: Any) -> frozenset[tuple[str, int]]:
    if not assignment:
        return frozenset()
    return frozenset((topic, number) for topic, numbers in assignment.assignment for number in numbers)
