"""The enumerations of Kafka's APIs about ACLs: resource types, patterns, operations, permissions.

Source: Kafka's ResourceType, PatternType, AclOperation and AclPermissionType (KIP-140, KIP-290, KIP-373).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""


class AclResourceType(IntEnum):
    """The kinds of resource that ACLs are about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The kinds of a name in an ACL or a filter."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """The operations on resources. Its number is its bit in the "authorized operations"."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(IntEnum):
    """The two effects of an ACL."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3
