"""The shared response of AddRaftVoter and RemoveRaftVoter: the voters are not changed in this way (KIP-853).

The checks and their texts are those of a Kafka whose kraft.version is 0. Group 0's voters follow from the
nodes of the cluster (`broker/membership/`). Source: Kafka's KafkaRaftClient.handleAddVoterRequest.
"""

from __future__ import annotations

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.primitives import ZERO_UUID


def voter_change_error(
    own_id: str | None, verb: str, cluster_id: str | None, voter_id: int, directory_id: bytes
) -> tuple[ErrorCode, str]:
    """The error and its text. Args: own_id: the id of this cluster; verb: "add" or "remov"."""
    if cluster_id is not None and cluster_id != own_id:
        text = f'The given id "{cluster_id}" doesn\'t match the cluster id "{own_id}"'
        return ErrorCode.INCONSISTENT_CLUSTER_ID, text
    if voter_id < 0 or bytes(directory_id) == ZERO_UUID:
        name = {"add": "Add", "remov": "Remove"}[verb]
        return ErrorCode.INVALID_REQUEST, f"{name} voter request didn't include a valid voter"
    text = f"Cluster doesn't support {verb}ing voter because the kraft.version feature is 0"
    return ErrorCode.UNSUPPORTED_VERSION, text
