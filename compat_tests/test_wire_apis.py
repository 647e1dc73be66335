"""ApiVersions: the whole list of APIs and features, held against `compat_tests/kafka_apis.py`."""

from __future__ import annotations

import pytest

from compat_tests.kafka_apis import FEATURES, FEATURES_NOT_LISTED, KAFKAS, listed_by_lockstep
from compat_tests.raw import Answer, RawConnection
from compat_tests.targets import KafkaTarget, Target

AREA = "Protocol"
OWN = {f"lockstep.{name}": ((1, 1), 1) for name in ("atomic", "locks", "staged")}


def _versions(raw: RawConnection, version: int) -> Answer:
    named = {"client_software_name": "compat", "client_software_version": "1.0"}
    return raw.call("api_versions", version, **(named if version >= 3 else {}))


@pytest.mark.case(AREA, "ApiVersions v{version}: every API that Kafka 4.4.0 lists, but those of the table")
@pytest.mark.parametrize("version", range(6))
def test_apis(raw: RawConnection, target: Target, version: int) -> None:
    listed = {
        each["api_key"]: (each["min_version"], each["max_version"])
        for each in _versions(raw, version)["api_keys"]
    }
    assert listed == (KAFKAS if target.name == KafkaTarget.name else listed_by_lockstep())


@pytest.mark.case(AREA, "ApiVersions v{version}: features with a lowest level of 0 come since version 4")
@pytest.mark.parametrize("version", [3, 4, 5])
def test_features(raw: RawConnection, target: Target, version: int) -> None:
    answer = _versions(raw, version)
    supported = {
        each["name"]: (each["min_version"], each["max_version"]) for each in answer["supported_features"]
    }
    finalized = {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}
    expected = dict(FEATURES)
    if target.name != KafkaTarget.name:
        expected = {name: each for name, each in FEATURES.items() if name not in FEATURES_NOT_LISTED} | OWN
    assert finalized == {name: level for name, (_, level) in expected.items() if level is not None}
    assert supported == {
        name: levels for name, (levels, _) in expected.items() if version >= 4 or levels[0] > 0
    }
    assert answer["finalized_features_epoch"] >= 0
