"""NOTES"""

from __future__ import annotations

from protocol.fields import Struct, array, boolean, int16, int32, int64, message, string, struct


@message(api_key=18, versions="0-4", flexible="3+", kind="request")
class ApiVersionsRequest(Struct):
    """DOC ApiVersionsRequest"""

    client_software_name: str = string(versions="3+", ignorable=True)
    client_software_version: str = string(versions="3+", ignorable=True)


@struct()
class ApiVersion(Struct):
    """DOC ApiVersion"""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct()
class SupportedFeatureKey(Struct):
    """DOC SupportedFeatureKey"""

    name: str = string(versions="3+")
    min_version: int = int16(versions="3+")
    max_version: int = int16(versions="3+")


@struct()
class FinalizedFeatureKey(Struct):
    """DOC FinalizedFeatureKey"""

    name: str = string(versions="3+")
    max_version_level: int = int16(versions="3+")
    min_version_level: int = int16(versions="3+")


@message(api_key=18, versions="0-4", flexible="3+", kind="response")
class ApiVersionsResponse(Struct):
    """DOC ApiVersionsResponse"""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, versions="3+", tagged="3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64(default=-1, versions="3+", tagged="3+", tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, versions="3+", tagged="3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean(versions="3+", tagged="3+", tag=3, ignorable=True)
