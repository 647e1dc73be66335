"""DescribeConfigs (32): the configuration of topics, brokers and the like (KIP-133).

Versions: 1 synonyms and sources (KIP-226); 2 throttling is the client's duty (KIP-219); 3 types and
documentation (KIP-569); 4 flexible.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, int8, int16, int32, message, string, struct


@struct()
class DescribeConfigsResource(Struct):
    """One resource, and which of its configurations."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable="0+")


@message(api_key=32, versions="1-4", flexible="4+", kind="request")
class DescribeConfigsRequest(Struct):
    """Resources whose configuration is requested."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(versions="1+")
    include_documentation: bool = boolean(versions="3+")


@struct()
class DescribeConfigsSynonym(Struct):
    """Another place the value could come from, in order of precedence."""

    name: str = string(versions="1+")
    value: str | None = string(versions="1+", nullable="0+")
    source: int = int8(versions="1+")


@struct()
class DescribeConfigsResourceResult(Struct):
    """One configuration."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1, versions="1+", ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, versions="1+", ignorable=True)
    config_type: int = int8(versions="3+", ignorable=True)
    documentation: str | None = string(versions="3+", nullable="0+", ignorable=True)


@struct()
class DescribeConfigsResult(Struct):
    """The configuration of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message(api_key=32, versions="1-4", flexible="4+", kind="response")
class DescribeConfigsResponse(Struct):
    """A result for each requested resource."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
