"""The settings of the authorizer and the audit log: a part of `config.Settings`.

Source: Kafka's StandardAuthorizer, KIP-801.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lockstep.broker.settings.properties import ConfigError, Kind, setting

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS_SEPARATOR: Final = ";"
"""A comma may be part of a certificate's name."""
USER_PREFIX: Final = "User:"


@dataclass(frozen=True)
class AuthorizerSettings:
    """The authorizer, if there is one, the principals to whom no ACL applies, and the audit log."""

    authorizer_class_name: str = setting(
        "authorizer.class.name",
        Kind.STRING,
        "",
        f"{STANDARD_AUTHORIZER}: a client may do what an ACL allows it (docs/authorization.md). Empty: "
        "everything. The same on all nodes.",
        choices=("", STANDARD_AUTHORIZER),
    )
    super_users: str = setting(
        "super.users",
        Kind.STRING,
        "",
        "Principals that may do everything, with `;` between them: User:alice;User:CN=admin,O=here.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found",
        Kind.BOOLEAN,
        False,
        "Everyone may do everything with a resource that no ACL at all is about.",
    )
    lockstep_audit_log: str = setting(
        "lockstep.audit.log",
        Kind.STRING,
        "",
        "A file that gets a line for each administrative operation: who, from where, on what, allowed or "
        "denied (docs/audit.md). Empty: none.",
    )

    def super_user_names(self) -> tuple[str, ...]:
        """The principals of `super.users`. Raises ConfigError for one without a type."""
        names = tuple(each.strip() for each in self.super_users.split(SUPER_USERS_SEPARATOR) if each.strip())
        for name in names:
            principal_type, colon, _ = name.partition(":")
            if not principal_type or not colon:
                raise ConfigError(
                    "super.users",
                    self.super_users,
                    f"{name} has no type: write User:{name}, and {SUPER_USERS_SEPARATOR} between principals",
                )
        return names

    def authorizer_warnings(self) -> list[str]:
        """Warnings at a start: access that these settings leave open."""
        if not self.authorizer_class_name:
            unused = [
                name
                for name, is_set in (
                    ("super.users", self.super_users),
                    ("allow.everyone.if.no.acl.found", self.allow_everyone_if_no_acl_found),
                )
                if is_set
            ]
            if unused:
                return [
                    f"{' and '.join(unused)} without authorizer.class.name={STANDARD_AUTHORIZER}: no ACL is "
                    "in force, every client may do everything"
                ]
            return []
        warnings = []
        if self.allow_everyone_if_no_acl_found:
            warnings.append(
                "allow.everyone.if.no.acl.found=true: every client may do everything with a resource that no "
                "ACL is about"
            )
        for name in self.super_user_names():
            if f",{USER_PREFIX}" in name:
                warnings.append(f"super.users has one principal {name!r}: `;` separates principals")
        if "User:ANONYMOUS" in self.super_user_names():
            warnings.append(
                "super.users has User:ANONYMOUS: every client that does not authenticate may do everything"
            )
        return warnings
