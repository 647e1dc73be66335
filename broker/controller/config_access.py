"""The check of a client that describes or alters configurations: a topic's, a group's, the cluster's.

Source: Kafka's ConfigHelper, ControllerApis.authorizeAlterResource.
"""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import Access, cluster_denial
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.config_resources import ResourceType
from lockstep.protocol.errors import ErrorCode


def check_config_access(
    access: Access, client: ClientContext, operation: AclOperation, resource_type: int, name: str
) -> None:
    """Raises RequestError; not for a type of resource that has no configurations."""
    match resource_type:
        case ResourceType.TOPIC:
            is_allowed = access.allows(client, operation, AclResourceType.TOPIC, name)
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        case ResourceType.GROUP:
            is_allowed = access.allows(client, operation, AclResourceType.GROUP, name)
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER | ResourceType.CLIENT_METRICS:
            if not access.allows_on_cluster(client, operation):
                raise cluster_denial(operation)
            return
        case _:
            return
    if not is_allowed:
        raise RequestError(error, error.message)
