"""The APIs of our own in Kafka's frames: their keys are far from Kafka's, and no ApiVersions lists them."""

from __future__ import annotations

from lockstep.protocol.cluster_messages import (
    CLUSTER_API_KEY,
    LockstepClusterRequest,
    LockstepClusterResponse,
)
from lockstep.protocol.fields import Struct
from lockstep.protocol.staged_messages import STAGED_API_KEY, LockstepStagedRequest, LockstepStagedResponse

PRIVATE_MESSAGES: dict[int, tuple[type[Struct], type[Struct]]] = {
    CLUSTER_API_KEY: (LockstepClusterRequest, LockstepClusterResponse),
    STAGED_API_KEY: (LockstepStagedRequest, LockstepStagedResponse),
}
"""(request, response) by API key."""
PRIVATE_NAMES = {CLUSTER_API_KEY: "LOCKSTEP_CLUSTER", STAGED_API_KEY: "LOCKSTEP_STAGED"}
"""As Kafka writes the names of its own, by API key."""
