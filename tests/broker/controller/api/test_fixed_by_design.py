"""Requests that change nothing here: of voters, levels of features, registrations and log directories."""

from __future__ import annotations

from typing import Any

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.add_raft_voter import AddRaftVoterRequest
from lockstep.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from lockstep.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from lockstep.protocol.messages.unregister_broker import UnregisterBrokerRequest
from lockstep.protocol.messages.unregister_controller import UnregisterControllerRequest
from lockstep.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from lockstep.protocol.primitives import ZERO_UUID
from lockstep.storage.partition import PartitionLog
from tests.broker.controller.api.conftest import ControllerCaller
from tests.broker.fakes import CLUSTER_ID
from tests.support.cases import each_case

DIRECTORY = b"d" * 16


def moves(path: str, topic: str, *partitions: int) -> AlterReplicaLogDir:
    return AlterReplicaLogDir(
        path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
    )


def errors(answer: Any) -> dict[tuple[str, int], int]:
    return {(t.topic_name, p.partition_index): p.error_code for t in answer.results for p in t.partitions}


@each_case("version", [1, 2])
async def test_a_replica_stays_in_the_one_log_directory(version: int) -> None:
    caller = ControllerCaller(log_dirs="/data")
    await caller.create("t", 2)
    here = caller.metadata.cluster.partition("t", 0)
    assert here is not None
    here.log = PartitionLog(3, here.topic.topic_id, 0)
    request = AlterReplicaLogDirsRequest(
        dirs=[moves("/data", "t", 0, 1, 2), moves("/data", "u", 0), moves("/nowhere", "u", 1)]
    )
    assert errors(await caller.call(request, version)) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.REPLICA_NOT_AVAILABLE,
        ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 1): ErrorCode.LOG_DIR_NOT_FOUND,
    }
    request = AlterReplicaLogDirsRequest(dirs=[moves("/nowhere", "t", 0), moves("/data", "t", 0)])
    assert errors(await caller.call(request, version)) == {("t", 0): ErrorCode.NONE}, "the last one counts"


LEVELS = (
    ("transaction.version", 2, 1, ""),
    ("lockstep.locks", 1, 1, ""),
    ("transaction.version", 1, 1, "Can't downgrade"),
    ("transaction.version", 1, 2, "fixed at 2"),
    ("transaction.version", 0, 3, "fixed at 2"),
    ("transaction.version", 3, 1, "only supports versions 0-2"),
    ("transaction.version", -1, 1, "cannot be less than 0"),
    ("transaction.version", 2, 0, "does not support the given upgrade type"),
    ("metadata.version", 33, 1, "Local controller 1 does not support this feature"),
    ("group.version", 1, 1, ""),
    ("group.version", 0, 1, "Can't downgrade"),
    ("group.version", 0, 3, "fixed at 1"),
    ("share.version", 0, 1, "Feature share.version not found"),
)


@each_case(("name", "level", "upgrade_type", "reason"), LEVELS)
@each_case("version", [1, 2])
async def test_a_feature_keeps_its_level(
    caller: ControllerCaller, version: int, name: str, level: int, upgrade_type: int, reason: str
) -> None:
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    answer = await caller.call(UpdateFeaturesRequest(feature_updates=[update]), version)
    if reason:
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert f"Invalid update version {level} for feature {name}. " in answer.error_message
        assert reason in answer.error_message and answer.results == []
    else:
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        told = [(each.feature, each.error_code, each.error_message) for each in answer.results]
        assert told == ([(name, 0, "NONE")] if version == 1 else [])


@each_case(("allowed", "reason"), [(False, "Can't downgrade"), (True, "fixed at 2")])
async def test_the_first_version_of_update_features_allows_downgrades_by_a_flag(
    caller: ControllerCaller, allowed: bool, reason: str
) -> None:
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=1, allow_downgrade=allowed)
    answer = await caller.call(UpdateFeaturesRequest(feature_updates=[update]), 0)
    assert reason in answer.error_message


async def test_nodes_are_not_unregistered(caller: ControllerCaller) -> None:
    unknown = await caller.call(UnregisterBrokerRequest(broker_id=9), 0)
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    known = await caller.call(UnregisterBrokerRequest(broker_id=1), 0)
    assert known.error_code == ErrorCode.INVALID_REQUEST
    assert "lockstep cluster remove" in known.error_message
    unknown = await caller.call(UnregisterControllerRequest(controller_id=9), 0)
    assert unknown.error_code == ErrorCode.CONTROLLER_ID_NOT_REGISTERED
    active = await caller.call(UnregisterControllerRequest(controller_id=1), 0)
    assert active.error_code == ErrorCode.INVALID_REQUEST
    assert active.error_message == "Controller cannot unregister itself while it is active."
    assert caller.metadata.nodes.registered_ids() == [1]


@each_case("kind", [AddRaftVoterRequest, RemoveRaftVoterRequest])
async def test_voters_are_not_changed(caller: ControllerCaller, kind: type[Any]) -> None:
    own = CLUSTER_ID

    async def error(cluster_id: str | None, voter_id: int, directory_id: bytes) -> int:
        request = kind(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id)
        return int((await caller.call(request, 0)).error_code)

    assert await error(None, 2, DIRECTORY) == await error(own, 2, DIRECTORY) == ErrorCode.UNSUPPORTED_VERSION
    assert await error("another", 2, DIRECTORY) == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert await error(None, -1, DIRECTORY) == ErrorCode.INVALID_REQUEST
    assert await error(None, 2, ZERO_UUID) == ErrorCode.INVALID_REQUEST
