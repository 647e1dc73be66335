"""APIs that every Kafka lists and whose feature may be absent, by hand.

Expected is what Kafka 4.4.0 answers on a listener without authentication, with one log directory and with a
static quorum.
"""

from __future__ import annotations

import uuid

import pytest

from compat_tests.conftest import NewTopic
from compat_tests.raw import Answer, RawConnection
from compat_tests.targets import Target

AREA = "Absent features on the wire"
UNKNOWN_TOPIC_OR_PARTITION = 3
UNSUPPORTED_SASL_MECHANISM = 33
ILLEGAL_SASL_STATE = 34
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
LOG_DIR_NOT_FOUND = 57
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
RESOURCE_NOT_FOUND = 91
UNACCEPTABLE_CREDENTIAL = 93
INVALID_UPDATE_VERSION = 95
BROKER_ID_NOT_REGISTERED = 102
INCONSISTENT_CLUSTER_ID = 104
CONTROLLER_ID_NOT_REGISTERED = 136

LISTED = {
    34: (1, 2),
    36: (0, 2),
    38: (1, 3),
    39: (1, 2),
    40: (1, 2),
    41: (1, 3),
    51: (0, 0),
    57: (0, 2),
    64: (0, 0),
    80: (0, 1),
    81: (0, 0),
    94: (0, 0),
}


@pytest.mark.case(AREA, "ApiVersions lists them, from AlterReplicaLogDirs (34) to UnregisterController (94)")
def test_listed(raw: RawConnection) -> None:
    answer = raw.call("api_versions", 4, client_software_name="compat", client_software_version="1.0")
    ranges = {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}
    assert {key: ranges.get(key) for key in LISTED} == LISTED


@pytest.mark.case(AREA, "SaslAuthenticate v{version}: ILLEGAL_SASL_STATE, with a text")
@pytest.mark.parametrize("version", range(3))
def test_sasl_authenticate(raw: RawConnection, version: int) -> None:
    answer = raw.call("sasl_authenticate", version, auth_bytes=b"\0user\0password")
    assert answer["error_code"] == ILLEGAL_SASL_STATE
    assert answer["error_message"] == "SaslAuthenticate request received after successful authentication"
    assert raw.call("metadata", 12, topics=[])["brokers"], "the connection stays open"


@pytest.mark.case(AREA, "CreateDelegationToken v{version}: not allowed without authentication")
@pytest.mark.parametrize("version", range(1, 4))
def test_create_delegation_token(raw: RawConnection, version: int) -> None:
    answer = raw.call("create_delegation_token", version, renewers=[], max_lifetime_ms=-1)
    assert answer["error_code"] == DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (answer["principal_type"], answer["principal_name"]) == ("User", "ANONYMOUS")
    assert answer.get("token_requester_principal_name", "ANONYMOUS") == "ANONYMOUS"
    assert {answer["issue_timestamp_ms"], answer["expiry_timestamp_ms"], answer["max_timestamp_ms"]} == {-1}
    if version == 3:
        owner = {"owner_principal_type": "User", "owner_principal_name": "alice"}
        answer = raw.call("create_delegation_token", 3, renewers=[], max_lifetime_ms=-1, **owner)
        assert (answer["principal_name"], answer["token_requester_principal_name"]) == ("alice", "ANONYMOUS")


@pytest.mark.case(AREA, "RenewDelegationToken and ExpireDelegationToken v{version}: not allowed")
@pytest.mark.parametrize("version", [1, 2])
def test_delegation_token_lifetime(raw: RawConnection, version: int) -> None:
    renewed = raw.call("renew_delegation_token", version, hmac=b"x", renew_period_ms=1000)
    expired = raw.call("expire_delegation_token", version, hmac=b"x", expiry_time_period_ms=-1)
    for answer in (renewed, expired):
        assert answer["error_code"] == DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert answer["expiry_timestamp_ms"] == -1


@pytest.mark.case(AREA, "DescribeDelegationToken v{version}: not allowed")
@pytest.mark.parametrize("version", range(1, 4))
def test_describe_delegation_token(raw: RawConnection, version: int) -> None:
    answer = raw.call("describe_delegation_token", version, owners=None)
    assert (answer["error_code"], answer["tokens"]) == (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])


@pytest.mark.case(AREA, "AlterUserScramCredentials: each user has its own error")
def test_scram(raw: RawConnection) -> None:
    assert raw.call("alter_user_scram_credentials", 0, deletions=[], upsertions=[])["results"] == []
    deletions = [{"name": "nobody", "mechanism": 1}, {"name": "strange", "mechanism": 9}]
    hasty = {"name": "hasty", "mechanism": 1, "iterations": 10, "salt": b"salt", "salted_password": b"x" * 32}
    answer = raw.call("alter_user_scram_credentials", 0, deletions=deletions, upsertions=[hasty])
    errors = {each["user"]: each["error_code"] for each in answer["results"]}
    assert all(each["error_message"] for each in answer["results"]) and len(answer["results"]) == 3
    wanted = (RESOURCE_NOT_FOUND, UNSUPPORTED_SASL_MECHANISM, UNACCEPTABLE_CREDENTIAL)
    assert errors == dict(zip(("nobody", "strange", "hasty"), wanted, strict=True))


def _own_path(raw: RawConnection) -> str:
    (found,) = raw.call("describe_log_dirs", 4, topics=[])["results"]
    return str(found["log_dir"])


def _moved(raw: RawConnection, version: int, *moves: tuple[str, str, int]) -> dict[tuple[str, int], int]:
    """Error codes by topic and partition of moves (path, topic, partition)."""
    dirs = [
        {"path": path, "topics": [{"name": topic, "partitions": [index]}]} for path, topic, index in moves
    ]
    answer = raw.call("alter_replica_log_dirs", version, dirs=dirs)
    return {
        (topic["topic_name"], each["partition_index"]): each["error_code"]
        for topic in answer["results"]
        for each in topic["partitions"]
    }


@pytest.mark.case(AREA, "AlterReplicaLogDirs v{version}: where the replica is, elsewhere, unknown, twice")
@pytest.mark.parametrize("version", [1, 2])
def test_alter_replica_log_dirs(raw: RawConnection, new_topic: NewTopic, version: int) -> None:
    topic, path = new_topic(partitions=2), _own_path(raw)
    assert _moved(raw, version, (path, topic, 1)) == {(topic, 1): 0}
    assert _moved(raw, version, (path, topic, 2)) == {(topic, 2): UNKNOWN_TOPIC_OR_PARTITION}
    assert _moved(raw, version, (path, topic + "-no", 0)) == {(topic + "-no", 0): UNKNOWN_TOPIC_OR_PARTITION}
    for other in ("/nowhere", "", path + "/"):
        assert _moved(raw, version, (other, topic, 0)) == {(topic, 0): LOG_DIR_NOT_FOUND}
    assert _moved(raw, version, (path, topic, 0), ("/nowhere", topic, 0)) == {(topic, 0): LOG_DIR_NOT_FOUND}
    assert _moved(raw, version, ("/nowhere", topic, 0), (path, topic, 0)) == {(topic, 0): 0}
    assert _moved(raw, version) == {}


def _updated(raw: RawConnection, version: int, *levels: tuple[str, int], **more: object) -> Answer:
    updates = [{"feature": name, "max_version_level": level, **more} for name, level in levels]
    fields: Answer = {"validate_only": True} if version else {}
    return raw.call("update_features", version, feature_updates=updates, **fields)


@pytest.mark.case(AREA, "UpdateFeatures v{version}: a feature's own level, others, unknown features")
@pytest.mark.parametrize("version", range(3))
def test_update_features(raw: RawConnection, version: int) -> None:
    done = _updated(raw, version, ("transaction.version", 2))
    assert (done["error_code"], done["error_message"]) == (0, None)
    if version < 2:
        (result,) = done["results"]
        assert (result["feature"], result["error_code"], result["error_message"]) == (
            "transaction.version",
            0,
            "NONE",
        )
    refused = (("transaction.version", 1), ("transaction.version", 9), ("transaction.version", -1))
    for name, level in (*refused, ("no.such", 1), ("no.such", 0)):
        answer = _updated(raw, version, ("transaction.version", 2), (name, level))
        assert answer["error_code"] == INVALID_UPDATE_VERSION
        assert answer.get("results", []) == []
        text = (
            f"since the following feature had an error: Invalid update version {level} for feature {name}. "
        )
        assert text in answer["error_message"]
    if version:
        for upgrade_type in (0, 9):
            answer = _updated(raw, version, ("transaction.version", 2), upgrade_type=upgrade_type)
            assert "does not support the given upgrade type" in answer["error_message"]


@pytest.mark.case(AREA, "UnregisterBroker and UnregisterController: unknown ids, the active controller")
def test_unregister(raw: RawConnection, target: Target) -> None:
    for unknown in (-1, max(target.node_ids) + 90):
        broker = raw.call("unregister_broker", 0, broker_id=unknown)
        assert broker["error_code"] == BROKER_ID_NOT_REGISTERED
        assert broker["error_message"] == f"Broker ID {unknown} is not currently registered"
        controller = raw.call("unregister_controller", 0, controller_id=unknown)
        assert controller["error_code"] == CONTROLLER_ID_NOT_REGISTERED
        assert controller["error_message"] == f"Controller ID {unknown} is not currently registered."
    (partition,) = raw.call("describe_quorum", 2, topics=[QUORUM])["topics"][0]["partitions"]
    active = raw.call("unregister_controller", 0, controller_id=partition["leader_id"])
    assert active["error_code"] == INVALID_REQUEST
    assert active["error_message"] == "Controller cannot unregister itself while it is active."


QUORUM = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}


@pytest.mark.case(AREA, "AddRaftVoter v{version}: kraft.version is 0")
@pytest.mark.parametrize("version", [0, 1])
def test_add_raft_voter(raw: RawConnection, version: int) -> None:
    listeners = [{"name": "CONTROLLER", "host": "localhost", "port": 1}]

    def error(cluster_id: str | None, voter_id: int, directory_id: uuid.UUID) -> int:
        fields = {"voter_id": voter_id, "voter_directory_id": directory_id, "listeners": listeners}
        answer = raw.call("add_raft_voter", version, cluster_id=cluster_id, timeout=3000, **fields)
        assert answer["error_message"]
        return int(answer["error_code"])

    own = raw.call("metadata", 12, topics=[])["cluster_id"]
    assert error(None, 77, uuid.uuid4()) == error(own, 77, uuid.uuid4()) == UNSUPPORTED_VERSION
    assert error("another", 77, uuid.uuid4()) == error("", 77, uuid.uuid4()) == INCONSISTENT_CLUSTER_ID
    assert error(None, -1, uuid.uuid4()) == error(None, 77, uuid.UUID(int=0)) == INVALID_REQUEST


@pytest.mark.case(AREA, "RemoveRaftVoter: kraft.version is 0")
def test_remove_raft_voter(raw: RawConnection, target: Target) -> None:
    def error(cluster_id: str | None, voter_id: int, directory_id: uuid.UUID) -> int:
        fields = {"voter_id": voter_id, "voter_directory_id": directory_id}
        answer = raw.call("remove_raft_voter", 0, cluster_id=cluster_id, **fields)
        assert answer["error_message"]
        return int(answer["error_code"])

    known = target.node_ids[0]
    assert error(None, known, uuid.uuid4()) == error(None, 77, uuid.uuid4()) == UNSUPPORTED_VERSION
    assert error("another", known, uuid.uuid4()) == INCONSISTENT_CLUSTER_ID
    assert error(None, -1, uuid.uuid4()) == error(None, known, uuid.UUID(int=0)) == INVALID_REQUEST
