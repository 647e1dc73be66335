"""UpdateFeatures (57): the levels of the cluster's features are changed (KIP-584).

Versions: 1 the kind of downgrade, and validation only (KIP-778); 2 no result for each feature: all
are changed or none.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, int8, int16, int32, message, string, struct


@struct()
class FeatureUpdateKey(Struct):
    """The requested level of one feature; 0 disables it."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(versions="0")
    upgrade_type: int = int8(default=1, versions="1+")


@message(api_key=57, versions="0-2", flexible="0+", kind="request")
class UpdateFeaturesRequest(Struct):
    """The requested levels."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(versions="1+")


@struct()
class UpdatableFeatureResult(Struct):
    """The result for one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(api_key=57, versions="0-2", flexible="0+", kind="response")
class UpdateFeaturesResponse(Struct):
    """The result, up to version 1 for each feature."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, versions="0-1", ignorable=True)
