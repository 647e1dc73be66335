"""Kafka's rules over ACLs, written down once more in the simplest way: every ACL is looked at.

Owns: the model that `acl_cache.py` is held against, and the same model with planted mistakes, each of which
the property test must find. `ipaddress` alone is shared with the code.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable

from lockstep.broker.authorization.acl import AclBinding
from lockstep.protocol.acl_codes import AclOperation as Op
from lockstep.protocol.acl_codes import AclPermissionType, AclResourceType, PatternType

Decide = Callable[[Iterable[AclBinding], bool, str, str, Op, AclResourceType, str], bool]


def is_about(acl: AclBinding, resource_type: AclResourceType, name: str) -> bool:
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)


def is_for(acl: AclBinding, principal: str, host: str) -> bool:
    if acl.principal not in (principal, "User:*"):
        return False
    return acl.host == "*" or ipaddress.ip_address(host) in ipaddress.ip_network(acl.host, strict=False)


def implied(acl: AclBinding, operation: Op) -> bool:
    if acl.operation in (Op.ALL, operation):
        return True
    if acl.permission == AclPermissionType.DENY:
        return False
    if operation == Op.DESCRIBE:
        return acl.operation in (Op.READ, Op.WRITE, Op.DELETE, Op.ALTER)
    return operation == Op.DESCRIBE_CONFIGS and acl.operation == Op.ALTER_CONFIGS


def decide(
    acls: Iterable[AclBinding],
    allows_without: bool,
    principal: str,
    host: str,
    operation: Op,
    resource_type: AclResourceType,
    name: str,
) -> bool:
    about = [acl for acl in acls if is_about(acl, resource_type, name)]
    matching = [acl for acl in about if is_for(acl, principal, host) and implied(acl, operation)]
    if any(acl.permission == AclPermissionType.DENY for acl in matching):
        return False
    if matching:
        return True
    return allows_without and not about


def decide_on_any(
    acls: Iterable[AclBinding],
    allows_without: bool,
    principal: str,
    host: str,
    operation: Op,
    resource_type: AclResourceType,
) -> bool:
    acls = list(acls)
    if decide(acls, allows_without, principal, host, operation, resource_type, "hardcode"):
        return True
    own = [
        acl
        for acl in acls
        if acl.resource_type == resource_type
        and is_for(acl, principal, host)
        and acl.operation in (operation, Op.ALL)
    ]
    denied = [acl for acl in own if acl.permission == AclPermissionType.DENY]
    if any(acl.pattern_type == PatternType.LITERAL and acl.resource_name == "*" for acl in denied):
        return False

    def is_covered(allowed: AclBinding) -> bool:
        if allowed.pattern_type == PatternType.LITERAL and allowed.resource_name == "*":
            return False
        return any(
            allowed.resource_name.startswith(deny.resource_name)
            if deny.pattern_type == PatternType.PREFIXED
            else (deny.pattern_type, deny.resource_name) == (allowed.pattern_type, allowed.resource_name)
            for deny in denied
        )

    return any(not is_covered(acl) for acl in own if acl.permission == AclPermissionType.ALLOW)


# --- planted mistakes ---------------------------------------------------------------------------------------


def deny_implies(acls, allows_without, principal, host, operation, resource_type, name):  # type: ignore[no-untyped-def]
    about = [acl for acl in acls if is_about(acl, resource_type, name)]
    mine = [acl for acl in about if is_for(acl, principal, host)]
    mine = [acl for acl in mine if implied(acl._replace(permission=AclPermissionType.ALLOW), operation)]
    if any(acl.permission == AclPermissionType.DENY for acl in mine):
        return False
    return bool(mine) or (allows_without and not about)


def default_by_principal(acls, allows_without, principal, host, operation, resource_type, name):  # type: ignore[no-untyped-def]
    own = [acl for acl in acls if is_for(acl, principal, host)]
    return decide(own, allows_without, principal, host, operation, resource_type, name)


def star_of_a_prefix_is_a_wildcard(acls, allows_without, *question):  # type: ignore[no-untyped-def]
    literal = PatternType.LITERAL
    changed = [acl._replace(pattern_type=literal) if acl.resource_name == "*" else acl for acl in acls]
    return decide(changed, allows_without, *question)


def allow_wins(acls, allows_without, *question):  # type: ignore[no-untyped-def]
    allowing = [acl for acl in acls if acl.permission == AclPermissionType.ALLOW]
    return decide(allowing, False, *question) or decide(acls, allows_without, *question)


def network_is_an_address(acls, allows_without, *question):  # type: ignore[no-untyped-def]
    changed = [acl._replace(host=acl.host.partition("/")[0]) for acl in acls]
    return decide(changed, allows_without, *question)


MISTAKES: tuple[Decide, ...] = (
    deny_implies,
    default_by_principal,
    star_of_a_prefix_is_a_wildcard,
    allow_wins,
    network_is_an_address,
)
