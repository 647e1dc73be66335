"""The decision: may a principal, from a host, do an operation on a resource.

Owns: the ACLs by resource pattern and principal, and Kafka's rules over them. A decision looks at the ACLs of
the resource's name, of `*` and of each length of prefix that any ACL has, and there at the principal's and
`User:*`'s alone, so that its cost does not grow with the number of ACLs. Invariant: `version` changes with
each change of the ACLs. Does not: cache or log decisions (`authorizer.py`).
Rules: a DENY that matches denies, else an ALLOW that matches allows, else it is denied; but where no ACL at
all, of any principal, is about the resource, the default decides. An ALLOW implies DESCRIBE and
DESCRIBE_CONFIGS as in `IMPLYING`; a DENY implies nothing.
Source: Kafka's StandardAuthorizerData.authorize, Authorizer.authorizeByResourceType.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lockstep.broker.authorization.acl import (
    ANY_USER,
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    Host,
    HostPattern,
)
from lockstep.protocol.acl_codes import AclOperation, AclPermissionType, AclResourceType, PatternType

IMPLYING: Final = {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.ALL,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL}
    ),
}
"""The operations that an ALLOW may name to allow these; any other is allowed by itself or ALL."""
SOME_NAME: Final = "hardcode"
"""The name with which Kafka checks first whether an operation is allowed on any resource of a type."""
DEFAULT_ALLOW: Final = "DefaultAllow"
DEFAULT_DENY: Final = "DefaultDeny"


class Decision(NamedTuple):
    """A decision and the rule that it follows from, as the log names it."""

    is_allowed: bool
    rule: AclBinding | str


class _Entry(NamedTuple):
    """An ACL and the addresses that its host means."""

    acl: AclBinding
    host: HostPattern


_ByPrincipal = dict[str, dict[AclBinding, _Entry]]
_Pattern = tuple[PatternType, str]


class _ResourceAcls:
    """The ACLs of one type of resource."""

    __slots__ = ("patterns", "prefix_lengths")

    def __init__(self) -> None:
        self.patterns: dict[_Pattern, _ByPrincipal] = {}
        self.prefix_lengths: dict[int, int] = {}
        """The number of prefixes of each length."""

    def acls_about(self, name: str) -> Iterator[_ByPrincipal]:
        """The ACLs that are about this resource, pattern by pattern."""
        patterns = self.patterns
        names = [(PatternType.LITERAL, name)]
        if name != WILDCARD:
            names.append((PatternType.LITERAL, WILDCARD))
        names += [(PatternType.PREFIXED, name[:n]) for n in self.prefix_lengths if n <= len(name)]
        return (patterns[each] for each in names if each in patterns)


class AclCache:
    """See the module."""

    def __init__(self) -> None:
        self.allows_without_acls = False
        """`allow.everyone.if.no.acl.found`; set before the first decision."""
        self._by_type: dict[AclResourceType, _ResourceAcls] = {}
        self._acls: dict[AclBinding, None] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._acls)

    def __iter__(self) -> Iterator[AclBinding]:
        """The ACLs, in the order of their creation."""
        return iter(self._acls)

    def __contains__(self, acl: AclBinding) -> bool:
        return acl in self._acls

    def clear(self) -> None:
        """Forget all ACLs."""
        self._by_type.clear()
        self._acls.clear()
        self.version += 1

    def add(self, acl: AclBinding) -> None:
        """Add an ACL, unless it is there. Raises InvalidAcl for a host that is none."""
        entry = _Entry(acl, HostPattern(acl.host))
        self._acls[acl] = None
        self.version += 1
        of_type = self._by_type.setdefault(acl.resource_type, _ResourceAcls())
        pattern = acl.pattern_type, acl.resource_name
        if pattern not in of_type.patterns:
            of_type.patterns[pattern] = {}
            if acl.pattern_type is PatternType.PREFIXED:
                lengths, length = of_type.prefix_lengths, len(acl.resource_name)
                lengths[length] = lengths.get(length, 0) + 1
        of_type.patterns[pattern].setdefault(acl.principal, {})[acl] = entry

    def remove(self, acl: AclBinding) -> None:
        """Remove an ACL, if it is there."""
        if acl not in self._acls:
            return
        del self._acls[acl]
        self.version += 1
        of_type = self._by_type[acl.resource_type]
        pattern = acl.pattern_type, acl.resource_name
        by_principal = of_type.patterns[pattern]
        del by_principal[acl.principal][acl]
        if by_principal[acl.principal]:
            return
        del by_principal[acl.principal]
        if by_principal:
            return
        del of_type.patterns[pattern]
        if acl.pattern_type is PatternType.PREFIXED:
            lengths, length = of_type.prefix_lengths, len(acl.resource_name)
            lengths[length] -= 1
            if not lengths[length]:
                del lengths[length]

    def find(self, acl_filter: AclBindingFilter) -> list[AclBinding]:
        """The ACLs that a filter means, in the order of their creation."""
        return [acl for acl in self._acls if acl_filter.matches(acl)]

    # --- decisions ------------------------------------------------------------------------------------------

    def decide(
        self,
        principal: str,
        host: Host | None,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> Decision:
        """The decision on one resource, by its literal name."""
        allowed: AclBinding | None = None
        is_about_resource = False
        of_type = self._by_type.get(resource_type)
        for by_principal in of_type.acls_about(name) if of_type is not None else ():
            is_about_resource = True
            for acl in _of_client(by_principal, principal, host):
                if acl.permission is AclPermissionType.DENY:
                    if acl.operation in (operation, AclOperation.ALL):
                        return Decision(False, acl)
                elif allowed is None and _allows(acl.operation, operation):
                    allowed = acl
        if allowed is not None:
            return Decision(True, allowed)
        if is_about_resource or not self.allows_without_acls:
            return Decision(False, DEFAULT_DENY)
        return Decision(True, DEFAULT_ALLOW)

    def decide_on_any(
        self, principal: str, host: Host | None, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """True if the operation is allowed on at least one resource that may exist.

        As in Kafka: an ALLOW counts unless a DENY has the same pattern, a prefix of it or `*`; none implies
        another operation.
        """
        if self.decide(principal, host, operation, resource_type, SOME_NAME).is_allowed:
            return True
        of_type = self._by_type.get(resource_type)
        allowed: list[_Pattern] = []
        denied: set[_Pattern] = set()
        for pattern, by_principal in of_type.patterns.items() if of_type is not None else ():
            for acl in _of_client(by_principal, principal, host):
                if acl.operation in (operation, AclOperation.ALL):
                    if acl.permission is AclPermissionType.DENY:
                        denied.add(pattern)
                    else:
                        allowed.append(pattern)
        everything = PatternType.LITERAL, WILDCARD
        if everything in denied:
            return False
        if everything in allowed:
            return True
        return any(
            pattern not in denied
            and not any((PatternType.PREFIXED, pattern[1][:n]) in denied for n in of_type.prefix_lengths)
            for pattern in allowed
            if of_type is not None
        )


def _of_client(by_principal: _ByPrincipal, principal: str, host: Host | None) -> Iterator[AclBinding]:
    """The ACLs that are about this principal, or all users, at this host."""
    for each in (principal, ANY_USER) if principal != ANY_USER else (principal,):
        for acl, pattern in by_principal.get(each, {}).values():
            if pattern.covers(host):
                yield acl


def _allows(named: AclOperation, operation: AclOperation) -> bool:
    """True if an ALLOW of the operation `named` allows `operation`."""
    implying = IMPLYING.get(operation)
    return named in (operation, AclOperation.ALL) if implying is None else named in implying
