"""The enumerations of Kafka's configuration APIs: resource types, sources of values, operations.

Source: Kafka's ConfigResource.Type, DescribeConfigsResponse.ConfigSource and AlterConfigOp.OpType.
"""

from __future__ import annotations

from enum import IntEnum


class ResourceType(IntEnum):
    """The kinds of resource that have configurations."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a value."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    GROUP = 8


class ConfigOperation(IntEnum):
    """The change of one configuration."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
