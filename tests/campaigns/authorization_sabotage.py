"""`python -m tests.campaigns.authorization_sabotage PLANT serve ...`: Lockstep with one mistake in what ACLs
allow.

Owns: a mistake for each rule of docs/authorization.md, planted into a real broker process; the authorization
campaign must find each. The administrator, at 127.0.0.1, may do what it may without one in the decision.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from lockstep.broker.authorization import acl_cache
from lockstep.broker.authorization.acl import AclBinding, HostPattern
from lockstep.broker.authorization.acl_cache import DEFAULT_ALLOW, DEFAULT_DENY, AclCache, Decision
from lockstep.broker.authorization.authorizer import (
    Access,
    ClientDecisions,
    StandardAuthorizer,
    _AclAccess,
)
from lockstep.cli import main
from lockstep.protocol.acl_codes import AclOperation, AclPermissionType, PatternType

ADMINISTRATOR: Final = "127.0.0.1"
_decide = AclCache.decide
_decide_on_any = AclCache.decide_on_any
_decide_question = StandardAuthorizer.decide
_of_client = acl_cache._of_client
_allows = acl_cache._allows
_is_allowed = _AclAccess._is_allowed
_allows_access = _AclAccess.allows


# --- the decision -------------------------------------------------------------------------------------------


def _allowing(by_principal: Any, principal: str, host: Any) -> Iterator[AclBinding]:
    for acl in _of_client(by_principal, principal, host):
        if acl.permission is AclPermissionType.ALLOW:
            yield acl


def _without_denies(honest: Callable[..., Any]) -> Callable[..., Any]:
    """A decision to which no DENY is known."""

    def decide(self: AclCache, *question: Any) -> Any:
        acl_cache._of_client = _allowing
        try:
            return honest(self, *question)
        finally:
            acl_cache._of_client = _of_client

    return decide


def _an_allow_wins(self: AclCache, *question: Any) -> Decision:
    found = _without_denies(_decide)(self, *question)
    return found if isinstance(found.rule, AclBinding) else _decide(self, *question)


def _a_deny_implies(
    self: AclCache, principal: str, host: Any, operation: AclOperation, resource_type: Any, name: str
) -> Decision:
    for acl in _about(self, principal, host, resource_type, name):
        if acl.permission is AclPermissionType.DENY and _allows(acl.operation, operation):
            return Decision(False, acl)
    return _decide(self, principal, host, operation, resource_type, name)


def _about(self: AclCache, principal: str, host: Any, resource_type: Any, name: str) -> Iterator[AclBinding]:
    of_type = self._by_type.get(resource_type)
    for by_principal in of_type.acls_about(name) if of_type is not None else ():
        yield from _of_client(by_principal, principal, host)


def _the_default_is_each_clients(
    self: AclCache, principal: str, host: Any, operation: AclOperation, resource_type: Any, name: str
) -> Decision:
    found = _decide(self, principal, host, operation, resource_type, name)
    if found.rule != DEFAULT_DENY or any(_about(self, principal, host, resource_type, name)):
        return found
    return Decision(self.allows_without_acls, DEFAULT_ALLOW)


def _the_default_is_for_every_operation(self: AclCache, *question: Any) -> Decision:
    found = _decide(self, *question)
    return Decision(self.allows_without_acls, DEFAULT_ALLOW) if found.rule == DEFAULT_DENY else found


def _without_all(named: AclOperation, operation: AclOperation) -> bool:
    return named is not AclOperation.ALL and _allows(named, operation)


def _on_some_name(self: AclCache, principal: str, host: Any, operation: Any, resource_type: Any) -> bool:
    return self.decide(principal, host, operation, resource_type, acl_cache.SOME_NAME).is_allowed


# --- what an ACL is about -----------------------------------------------------------------------------------


def _patterns(matches: Callable[[PatternType, str, str], bool]) -> Callable[..., Any]:
    def acls_about(self: Any, name: str) -> Iterator[Any]:
        return (each for (kind, pattern), each in self.patterns.items() if matches(kind, pattern, name))

    return acls_about


def _matches(kind: PatternType, pattern: str, name: str) -> bool:
    return name.startswith(pattern) if kind is PatternType.PREFIXED else pattern in ("*", name)


def _every_star(kind: PatternType, pattern: str, name: str) -> bool:
    return pattern == "*" or _matches(kind, pattern, name)


def _no_star(kind: PatternType, pattern: str, name: str) -> bool:
    return pattern != "*" and _matches(kind, pattern, name)


def _names_alone(kind: PatternType, pattern: str, name: str) -> bool:
    return pattern == name or (kind is PatternType.LITERAL and pattern == "*")


def _prefixes_alone(kind: PatternType, pattern: str, name: str) -> bool:
    return _matches(kind, pattern, name) or name.startswith(pattern)


# --- whom an ACL is for -------------------------------------------------------------------------------------


def _by_name(by_principal: Any, principal: str, host: Any) -> Iterator[AclBinding]:
    """`User:*` is a user."""
    return (acl for acl, pattern in by_principal.get(principal, {}).values() if pattern.covers(host))


def _of_anybody(by_principal: Any, principal: str, host: Any) -> Iterator[AclBinding]:
    for entries in by_principal.values():
        for acl, pattern in entries.values():
            if pattern.covers(host):
                yield acl


def _at_any_host(self: HostPattern, host: Any) -> bool:
    return True


def _at_its_first_address(self: HostPattern, host: Any) -> bool:
    return self._network is None or host == self._network.network_address


# --- when and where it is asked -----------------------------------------------------------------------------


def _kept(self: StandardAuthorizer, client: Any) -> ClientDecisions:
    """The decisions of before the ACLs changed."""
    key = str(client.principal), client.host
    return self._by_client.setdefault(key, ClientDecisions(*key, 0))


def _always(answer: bool) -> Callable[..., bool]:
    def ask(self: _AclAccess, client: Any, *words: Any) -> bool:
        return answer if client.host != ADMINISTRATOR else _is_allowed(self, client, *words)

    return ask


def _shows_all(self: _AclAccess, *words: Any, is_requested: bool = True) -> bool:
    return not is_requested or _allows_access(self, *words)


Change = tuple[Any, str, Any]
_RESOURCE: Final = acl_cache._ResourceAcls
PLANTS: Final[dict[str, Change]] = {
    "no-deny-counts": (AclCache, "decide", _without_denies(_decide)),
    "an-allow-wins": (AclCache, "decide", _an_allow_wins),
    "a-deny-implies": (AclCache, "decide", _a_deny_implies),
    "an-allow-implies-nothing": (acl_cache, "IMPLYING", {}),
    "all-is-an-operation": (acl_cache, "_allows", _without_all),
    "the-default-is-each-clients": (AclCache, "decide", _the_default_is_each_clients),
    "the-default-is-for-every-operation": (AclCache, "decide", _the_default_is_for_every_operation),
    "any-resource-is-one-name": (AclCache, "decide_on_any", _on_some_name),
    "any-resource-is-never-denied": (AclCache, "decide_on_any", _without_denies(_decide_on_any)),
    "a-prefixed-star-is-everything": (_RESOURCE, "acls_about", _patterns(_every_star)),
    "a-star-is-nothing": (_RESOURCE, "acls_about", _patterns(_no_star)),
    "a-prefix-is-a-name": (_RESOURCE, "acls_about", _patterns(_names_alone)),
    "a-name-is-a-prefix": (_RESOURCE, "acls_about", _patterns(_prefixes_alone)),
    "all-users-are-one": (acl_cache, "_of_client", _by_name),
    "users-do-not-count": (acl_cache, "_of_client", _of_anybody),
    "hosts-do-not-count": (HostPattern, "covers", _at_any_host),
    "a-network-is-an-address": (HostPattern, "covers", _at_its_first_address),
    "a-decision-is-kept": (StandardAuthorizer, "decisions_of", _kept),
    "a-list-shows-all": (_AclAccess, "allows", _shows_all),
    "all-operations-are-authorized": (_AclAccess, "authorized_operations", Access.authorized_operations),
    "nothing-is-denied": (_AclAccess, "_is_allowed", _always(True)),
    "everything-is-denied": (_AclAccess, "_is_allowed", _always(False)),
}


def plant(place: Any, attribute: str, broken: Any) -> None:
    """Make the mistake; one in the decision only for clients."""
    if place in (StandardAuthorizer, _AclAccess):
        setattr(place, attribute, broken)
        return
    honest = getattr(place, attribute)

    def decide(self: StandardAuthorizer, decisions: ClientDecisions, action: Any) -> Decision:
        setattr(place, attribute, honest if decisions.host == ADMINISTRATOR else broken)
        return _decide_question(self, decisions, action)

    StandardAuthorizer.decide = decide  # type: ignore[method-assign]


if __name__ == "__main__":
    plant(*PLANTS[sys.argv.pop(1)])
    sys.exit(main())
