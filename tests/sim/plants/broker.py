"""Plants in the broker's replayed machines and in what appends to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from lockstep.broker.groups.group_store import GroupStore
from lockstep.broker.metadata.metadata_version import LATEST_VERSION
from lockstep.broker.peers.metadata_versions import MetadataVersions
from lockstep.broker.produce import producer_state
from lockstep.broker.produce.produce_fast_path import PlainResponse, ProduceFastPath
from lockstep.broker.produce.producer_state import NEW, Producer, ProducerState
from lockstep.protocol.records.batch import BatchHeader, read_header
from lockstep.storage import control_partition as control
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import CONTROL_PARTITION
from tests.sim.faces import Plant
from tests.sim.plants.raft import ELECTIONS, replaced


@contextmanager
def retry_taken_as_new() -> Iterator[None]:
    real = ProducerState.check

    def check(self: ProducerState, partition: int, header: BatchHeader) -> int:
        real(self, partition, header)
        return NEW

    with patch.object(ProducerState, "check", check):
        yield


@contextmanager
def ids_before_commit() -> Iterator[None]:
    real = LogGroup.append_values

    async def append_values(
        self: LogGroup, partition: PartitionLog, values: Sequence[bytes], *, reserved: bool = True
    ) -> None:
        if partition.local_id == CONTROL_PARTITION:
            return await real(self, partition, values, reserved=reserved)
        batch = bytearray(control.encode_values(values, self._replica.next_time_ms()))
        self.append(partition, batch, read_header(batch), reserved=reserved)

    with patch.object(LogGroup, "append_values", append_values):
        yield


@contextmanager
def producers_not_restored() -> Iterator[None]:
    real = ProducerState.restore

    def restore(self: ProducerState, data: bytes) -> None:
        real(self, b"")

    with patch.object(ProducerState, "restore", restore):
        yield


@contextmanager
def fast_sequences_not_recorded() -> Iterator[None]:
    real = ProducerState.producer_continued_by

    def producer_continued_by(self: ProducerState, *batch: int) -> Producer | None:
        return None if real(self, *batch) is None else Producer(batch[2])

    with patch.object(ProducerState, "producer_continued_by", producer_continued_by):
        yield


@contextmanager
def lost_replies_succeed() -> Iterator[None]:
    real = PlainResponse.encode

    def encode(self: PlainResponse, path: ProduceFastPath, is_lost: bool) -> object:
        return real(self, path, False)

    with patch.object(PlainResponse, "encode", encode):
        yield


@contextmanager
def node_not_waited_for() -> Iterator[None]:
    real = MetadataVersions.supported_by

    def supported_by(self: MetadataVersions, node_id: int) -> int | None:
        return real(self, node_id) or LATEST_VERSION

    with patch.object(MetadataVersions, "supported_by", supported_by):
        yield


PLANTS = (
    Plant(
        "fast-sequences-not-recorded",
        "the fast path appends a producer's batch and does not record its sequence",
        fast_sequences_not_recorded,
        workload="appends",
        overrides={"think_ms": 50},
        source="decision 56: what the general path leaves",
    ),
    Plant(
        "fast-replies-after-loss",
        "the fast path acknowledges batches that were lost with the leadership",
        lost_replies_succeed,
        workload="appends",
        overrides={**ELECTIONS, "think_ms": 50},
        source="decision 56: what the general path leaves",
    ),
    Plant(
        "one-batch-remembered",
        "only a producer's last batch is remembered, not its last five",
        replaced(producer_state, "REMEMBERED_BATCHES", 1),
        workload="appends",
        overrides={**ELECTIONS, "think_ms": 50},
        source="Redpanda #3039",
    ),
    Plant(
        "retry-taken-as-new",
        "a batch that is there already is appended once more",
        retry_taken_as_new,
        workload="appends",
        overrides={**ELECTIONS, "think_ms": 50},
        source="Redpanda #3039",
    ),
    Plant(
        "producers-not-restored",
        "producers in a checkpoint are forgotten by a restart",
        producers_not_restored,
        workload="appends",
        overrides={"think_ms": 50, "segment_bytes": 64 << 10},
        source="Redpanda #6018",
    ),
    Plant(
        "tombstone-follows-commit",
        "an offset expires although a commit of its group is under way",
        replaced(GroupStore, "is_under_way", lambda self, group_id: False),
        workload="groups",
        overrides={"think_ms": 50, "safety_s": 60, "faults": ("pause", "clock jump", "stalled flush")},
        source="decision 8 (a tombstone waits)",
    ),
    Plant(
        "command-answered-early",
        "metadata commands are answered when they are appended, producer ids handed out",
        ids_before_commit,
        workload="metadata",
        overrides={**ELECTIONS, "think_ms": 50},
        source="the specification: state changes only by replay of committed records",
    ),
    Plant(
        "version-without-a-node",
        "the controller records a metadata version without waiting for a node that is down",
        node_not_waited_for,
        workload="metadata",
        overrides={"think_ms": 50, "nodes": 3, "faults": ("kill", "power loss")},
        rules=("no node stops without a disk fault",),
        source="decision 68",
    ),
)
