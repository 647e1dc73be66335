"""LockstepCluster, an API of our own for `lockstep cluster` (`broker/controller/cluster_admin.py`).

ApiVersions does not list it. Any node serves the status and giving up damaged records; the controller serves
the rest.
"""

from __future__ import annotations

import json
from typing import Any, Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, cluster_denial
from lockstep.broker.controller.cluster_admin import ClusterAdmin
from lockstep.broker.controller.cluster_status import ClusterStatus
from lockstep.broker.controller.damage_reports import DamageReports
from lockstep.broker.controller.log_group_report import Document
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, Needs, RequestHandler
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import RequestHeader
from lockstep.protocol.cluster_messages import (
    CLUSTER_API_KEY,
    LockstepClusterRequest,
    LockstepClusterResponse,
)
from lockstep.protocol.errors import ErrorCode

MAX_REQUEST_BYTES: Final = 1000
STATUS: Final = {"do": "status"}


class LockstepCluster(RequestHandler):
    """See the module."""

    api_key = CLUSTER_API_KEY
    versions = (0, 0)
    needs = Needs.CONTROLLER
    is_advertised = False

    def __init__(
        self,
        cluster: MetadataCache,
        status: ClusterStatus,
        admin: ClusterAdmin,
        damage_reports: DamageReports,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster
        self._status = status
        self._admin = admin
        self._damage_reports = damage_reports

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: LockstepClusterRequest
    ) -> LockstepClusterResponse:
        """The result as JSON, or the error and its text."""
        try:
            document = await self._execute(client, _read(request))
        except RequestError as rejection:
            return LockstepClusterResponse(error_code=rejection.error, error_message=rejection.message)
        return LockstepClusterResponse(body=json.dumps(document).encode())

    def is_local(self, client: ClientContext, request: LockstepClusterRequest) -> bool:
        """True for a command that any node serves."""
        try:
            command = _read(request)
            return command == STATUS or command.get("do") == "give_up"
        except RequestError:
            return True

    async def _execute(self, client: ClientContext, command: dict[str, Any]) -> Document:
        operation = AclOperation.DESCRIBE if command == STATUS else AclOperation.ALTER
        if not self._access.allows_on_cluster(client, operation):
            raise cluster_denial(operation)
        if command == STATUS:
            return await self._status.document(client)
        match command:
            case {"do": "add", "node": int(node_id)}:
                return await self._admin.add(node_id)
            case {"do": "remove", "node": int(node_id)}:
                return await self._admin.remove(node_id)
            case {"do": "transfer", "group": int(group_id), "node": int(node_id)}:
                return await self._admin.transfer(group_id, node_id)
            case {"do": "give_up", "topic": str(topic), "partition": int(index)}:
                return await self._skip_damage(topic, index, is_forced=command.get("force") is True)
        raise RequestError(ErrorCode.INVALID_REQUEST, "this version does not know the requested command")

    async def _skip_damage(self, topic: str, index: int, *, is_forced: bool) -> Document:
        """Makes readers of a partition skip its damaged ranges, on all nodes with a copy."""
        if self._cluster.partition(topic, index) is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
        given_up, unanswered = await self._damage_reports.skip_damage(topic, index, is_forced=is_forced)
        return {"given_up": given_up, "unanswered": unanswered}


def _read(request: LockstepClusterRequest) -> dict[str, Any]:
    if len(request.body) <= MAX_REQUEST_BYTES:
        try:
            command = json.loads(bytes(request.body))
        except (ValueError, RecursionError):
            command = None
        if isinstance(command, dict):
            return command
    raise RequestError(ErrorCode.INVALID_REQUEST, "the request is not a small JSON object")
