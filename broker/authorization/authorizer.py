"""The authorizer, and the checks of handlers: may a client perform an operation on a resource?

Owns: `Access`, the checks of one API's handler; `ALLOW_ALL`, for a broker without an authorizer;
and `StandardAuthorizer`, which decides by super users and ACLs (`acl_cache.py`). Invariants: decisions are
cached for each principal and host until the ACLs change, at most `MAX_DECISIONS` for each of `MAX_CLIENTS`;
each denial of a requested resource is logged at INFO, an equal one once a minute; what only a list leaves
out is logged at DEBUG, as what is allowed. Does not: choose operations and resources, or the place of an
error (the handlers do; docs/authorization.md has the table).
Source: Kafka's StandardAuthorizer and AuthHelper.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from lockstep.broker.authorization.acl import AclBinding, parse_host
from lockstep.broker.authorization.acl_cache import AclCache, Decision
from lockstep.broker.process.log_text import printable
from lockstep.broker.requests.authorized_operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
)
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext
from lockstep.protocol.acl_codes import CLUSTER_NAME, AclOperation, AclResourceType, PatternType
from lockstep.protocol.api import ApiKey
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.private_messages import PRIVATE_NAMES
from lockstep.storage.rate_limited_log import RateLimitedLog

log = logging.getLogger("lockstep.authorizer")

MAX_CLIENTS: Final = 1_000
"""LIMIT. Principals and hosts with cached decisions; of more all are forgotten."""
MAX_DECISIONS: Final = 1_000
"""LIMIT. Cached decisions of one of them; of more all are forgotten."""
MAX_LOGGED_CHARACTERS: Final = 250
OPERATIONS: Final = {
    AclResourceType.TOPIC: TOPIC_OPERATIONS,
    AclResourceType.GROUP: GROUP_OPERATIONS,
    AclResourceType.CLUSTER: CLUSTER_OPERATIONS,
}
ALL_BITS: Final = {kind: sum(1 << each for each in operations) for kind, operations in OPERATIONS.items()}
SUPER_USER: Final = Decision(True, "SuperUser")
ANY_RESOURCE: Final = "any resource of the type"

_Action = tuple[AclOperation, AclResourceType, str | None]
"""Operation, type and name of a resource; None: any resource of the type."""


class ClientDecisions:
    """The decisions about one principal at one host. A connection keeps those of its client."""

    __slots__ = ("by_action", "host", "principal", "version")

    def __init__(self, principal: str, host: str, version: int) -> None:
        self.principal = principal
        self.host = host
        self.version = version
        """`AclCache.version` when they were made."""
        self.by_action: dict[_Action, Decision] = {}


class Access:
    """The questions of one API's handler. This class allows everything, as a Kafka without an authorizer."""

    __slots__ = ()

    is_checked = False
    """True where there is an authorizer: without one a hot path skips its checks."""

    def allows(
        self,
        client: ClientContext,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        is_requested: bool = True,
    ) -> bool:
        """True if the client may do this. `is_requested`: its request names the resource, so that a denial is
        logged at INFO."""
        return True

    def allows_on_cluster(
        self, client: ClientContext, operation: AclOperation, *, is_requested: bool = True
    ) -> bool:
        """True if the client may do this with the cluster."""
        return self.allows(
            client, operation, AclResourceType.CLUSTER, CLUSTER_NAME, is_requested=is_requested
        )

    def allows_on_any(
        self, client: ClientContext, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """True if the client may do this with some resource of a type."""
        return True

    def authorized_operations(self, client: ClientContext, resource_type: AclResourceType, name: str) -> int:
        """The bits of the operations that the client may do with a topic or a group (KIP-430)."""
        return ALL_BITS[resource_type]

    def cluster_operations(self, client: ClientContext) -> int:
        """The bits of the operations that the client may do with the cluster; 0 if it may not describe it."""
        if not self.allows_on_cluster(client, AclOperation.DESCRIBE):
            return 0
        return self.authorized_operations(client, AclResourceType.CLUSTER, CLUSTER_NAME)


class Authorizer:
    """Gives each handler its `Access`. This class is a broker without an authorizer."""

    __slots__ = ()

    def access(self, api_key: int) -> Access:
        """The questions of an API's handler."""
        return EVERYTHING

    @property
    def is_enabled(self) -> bool:
        """True where there is an authorizer, so that ACLs can be created."""
        return False


EVERYTHING: Final = Access()
ALLOW_ALL: Final = Authorizer()


class StandardAuthorizer(Authorizer):
    """Kafka's own authorizer: super users, then ACLs.

    Args: acls: those of the cluster. super_users: principals as text. denials: their log.
    """

    __slots__ = ("_acls", "_by_client", "_super_users", "denials")

    def __init__(self, acls: AclCache, super_users: Iterable[str], denials: RateLimitedLog) -> None:
        self._acls = acls
        self._super_users = frozenset(super_users)
        self.denials = denials
        self._by_client: dict[tuple[str, str], ClientDecisions] = {}

    @property
    def is_enabled(self) -> bool:
        return True

    def access(self, api_key: int) -> Access:
        return _AclAccess(self, api_key)

    def decisions_of(self, client: ClientContext) -> ClientDecisions:
        """The decisions about a client under the ACLs of now; those of its connection while they are."""
        known, version = client.decisions, self._acls.version
        if isinstance(known, ClientDecisions) and known.version == version:
            return known
        key = str(client.principal), client.host
        decisions = self._by_client.get(key)
        if decisions is None or decisions.version != version:
            if len(self._by_client) >= MAX_CLIENTS:
                self._by_client.clear()
            decisions = self._by_client[key] = ClientDecisions(*key, version)
        client.decisions = decisions
        return decisions

    def decide(self, decisions: ClientDecisions, action: _Action) -> Decision:
        """Decide what is not cached."""
        operation, resource_type, name = action
        principal, host = decisions.principal, parse_host(decisions.host)
        if principal in self._super_users:
            decision = SUPER_USER
        elif name is None:
            allowed = self._acls.decide_on_any(principal, host, operation, resource_type)
            decision = Decision(allowed, ANY_RESOURCE)
        else:
            decision = self._acls.decide(principal, host, operation, resource_type, name)
        if len(decisions.by_action) >= MAX_DECISIONS:
            decisions.by_action.clear()
        decisions.by_action[action] = decision
        return decision


class _AclAccess(Access):
    """The questions of one API's handler to the authorizer."""

    __slots__ = ("_api_key", "_authorizer")

    is_checked = True

    def __init__(self, authorizer: StandardAuthorizer, api_key: int) -> None:
        self._authorizer = authorizer
        self._api_key = api_key

    def allows(
        self,
        client: ClientContext,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        is_requested: bool = True,
    ) -> bool:
        return self._is_allowed(client, (operation, resource_type, name), is_requested)

    def allows_on_any(
        self, client: ClientContext, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        return self._is_allowed(client, (operation, resource_type, None), True)

    def authorized_operations(self, client: ClientContext, resource_type: AclResourceType, name: str) -> int:
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.allows(client, operation, resource_type, name, is_requested=False)
        )

    def _is_allowed(self, client: ClientContext, action: _Action, is_requested: bool) -> bool:
        authorizer = self._authorizer
        decisions = authorizer.decisions_of(client)
        decision = decisions.by_action.get(action)
        if decision is None:
            decision = authorizer.decide(decisions, action)
            if log.isEnabledFor(logging.DEBUG):
                log.debug("%s", _line(decisions, action, self._api_key, decision))
        if is_requested and not decision.is_allowed:
            text = _line(decisions, action, self._api_key, decision)
            authorizer.denials.info(text, same=text)
        return decision.is_allowed


def cluster_denial(operation: AclOperation) -> RequestError:
    """The error of a client that may not do this with the cluster."""
    text = f"{operation.name} on {AclResourceType.CLUSTER.name}:{CLUSTER_NAME} is not authorized."
    return RequestError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)


def _line(decisions: ClientDecisions, action: _Action, api_key: int, decision: Decision) -> str:
    """One line about a decision, in Kafka's words."""
    operation, resource_type, name = action
    verdict = "Allowed" if decision.is_allowed else "Denied"
    resource = ANY_RESOURCE if name is None else f"{PatternType.LITERAL.name}:{_printable(name)}"
    return (
        f"Principal = {_printable(decisions.principal)} is {verdict} operation = {operation.name} "
        f"from host = {decisions.host} on resource = {resource_type.name}:{resource} "
        f"for request = {_api(api_key)} based on rule {_printable(_rule(decision.rule))}"
    )


def _rule(rule: AclBinding | str) -> str:
    if isinstance(rule, str):
        return rule
    return (
        f"{rule.permission.name} {rule.operation.name} to {rule.principal} from {rule.host} on "
        f"{rule.pattern_type.name}:{rule.resource_name}"
    )


def _printable(text: str) -> str:
    return printable(text, MAX_LOGGED_CHARACTERS)


def _api(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        return PRIVATE_NAMES.get(api_key, str(api_key))
