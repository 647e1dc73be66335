"""ApiVersions (18): what the broker serves.

Versions: 0 the list; 1 throttle time; 2 throttling is the client's duty from here on (KIP-219); 3 flexible,
the client names its software (KIP-511) and the response lists features (KIP-584); 4 features whose
lowest version is 0 may be listed (KAFKA-17011): below 4 they must be left out or older clients fail; 5 the
client names the cluster and the node that it means to reach (KIP-1242).

A request of a newer version than served gets the version 0 body with UNSUPPORTED_VERSION and
this API's own range, so that the client tries again (KIP-511).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, int16, int32, int64, message, string, struct


@message(api_key=18, versions="0-5", flexible="3+", kind="request")
class ApiVersionsRequest(Struct):
    """The first request of a connection: it requests the APIs and versions that the broker serves."""

    client_software_name: str = string(versions="3+", ignorable=True)
    client_software_version: str = string(versions="3+", ignorable=True)
    cluster_id: str | None = string(default=None, versions="5+", nullable="5+", ignorable=True)
    node_id: int = int32(default=-1, versions="5+", ignorable=True)


@struct()
class ApiVersion(Struct):
    """The versions of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct()
class SupportedFeatureKey(Struct):
    """A feature and the levels this broker supports."""

    name: str = string(versions="3+")
    min_version: int = int16(versions="3+")
    max_version: int = int16(versions="3+")


@struct()
class FinalizedFeatureKey(Struct):
    """A feature and the levels the cluster has agreed on."""

    name: str = string(versions="3+")
    max_version_level: int = int16(versions="3+")
    min_version_level: int = int16(versions="3+")


@message(api_key=18, versions="0-5", flexible="3+", kind="response")
class ApiVersionsResponse(Struct):
    """Every API served, and the features."""

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
