"""Kafka's error codes: number, name, whether a client retries it, and its meaning in words.

Codes, names and `retriable` are those of Apache Kafka 4.4.0; the words are ours and never on the wire
unless a handler puts them there.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """An error code of the wire; packs as the int it is."""

    retriable: bool
    """Whether clients retry on their own, after fresh metadata where that helps."""
    message: str

    def __new__(cls, code: int, retriable: bool = False, message: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "the broker met an error it did not expect"
    NONE = 0, False, "no error"
    OFFSET_OUT_OF_RANGE = 1, False, "the offset is outside what the partition holds"
    CORRUPT_MESSAGE = 2, True, "the batch fails its checksum, is cut or is not laid out as it must be"
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "this broker does not host the partition"
    INVALID_FETCH_SIZE = 4, False, "the number of bytes to fetch is not valid"
    LEADER_NOT_AVAILABLE = 5, True, "the partition has no leader yet"
    NOT_LEADER_OR_FOLLOWER = 6, True, "this broker does not lead the partition"
    REQUEST_TIMED_OUT = 7, True, "the request took longer than its timeout"
    BROKER_NOT_AVAILABLE = 8, False, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, True, "the replica is not available"
    MESSAGE_TOO_LARGE = 10, False, "a batch is larger than max.message.bytes"
    STALE_CONTROLLER_EPOCH = 11, False, "another controller has taken over"
    OFFSET_METADATA_TOO_LARGE = 12, False, "the metadata stored with the offset is too long"
    NETWORK_EXCEPTION = 13, True, "the connection was lost before the response came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "the coordinator is still loading its state"
    COORDINATOR_NOT_AVAILABLE = 15, True, "there is no coordinator now"
    NOT_COORDINATOR = 16, True, "another broker is the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, False, "the topic name is not allowed, or the topic is internal"
    RECORD_LIST_TOO_LARGE = 18, False, "the batch is larger than a log segment"
    NOT_ENOUGH_REPLICAS = 19, True, "too few replicas are in sync to accept a write"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "the write was stored by too few replicas"
    INVALID_REQUIRED_ACKS = 21, False, "acks must be -1, 0 or 1"
    ILLEGAL_GENERATION = 22, False, "the generation is not the group's present one"
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "the member's protocols do not fit those of its group"
    INVALID_GROUP_ID = 24, False, "the group id is not valid"
    UNKNOWN_MEMBER_ID = 25, False, "the group has no such member"
    INVALID_SESSION_TIMEOUT = 26, False, "the session timeout is outside what the broker allows"
    REBALANCE_IN_PROGRESS = 27, False, "the group is rebalancing: join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "the offset commit is too large"
    TOPIC_AUTHORIZATION_FAILED = 29, False, "not allowed on this topic"
    GROUP_AUTHORIZATION_FAILED = 30, False, "not allowed on this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "not allowed on this cluster"
    INVALID_TIMESTAMP = 32, False, "the record's timestamp is outside what the topic allows"
    UNSUPPORTED_SASL_MECHANISM = 33, False, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, False, "not a valid step of the SASL exchange"
    UNSUPPORTED_VERSION = 35, False, "the broker does not serve this version of the API"
    TOPIC_ALREADY_EXISTS = 36, False, "a topic with this name exists"
    INVALID_PARTITIONS = 37, False, "a topic needs at least one partition, and cannot lose any"
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "the replication factor is below one or above the number of brokers",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, False, "the replica assignment is not valid"
    INVALID_CONFIG = 40, False, "a configuration value is not valid"
    NOT_CONTROLLER = 41, True, "another broker is the controller"
    INVALID_REQUEST = 42, False, "the request contradicts itself or what came before it"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "the log's record format cannot answer this"
    POLICY_VIOLATION = 44, False, "the request breaks a rule of this broker"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "the batch's sequence does not follow the producer's last one"
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "the batch's sequence was stored before"
    INVALID_PRODUCER_EPOCH = 47, False, "the producer epoch is older than the latest one"
    INVALID_TXN_STATE = 48, False, "not possible in the transaction's present state"
    INVALID_PRODUCER_ID_MAPPING = 49, False, "the producer id does not belong to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, False, "the transaction timeout is longer than the broker allows"
    CONCURRENT_TRANSACTIONS = 51, True, "the transaction is still busy with another request"
    TRANSACTION_COORDINATOR_FENCED = 52, False, "a newer transaction coordinator has taken over"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "not allowed on this transactional id"
    SECURITY_DISABLED = 54, False, "security is switched off here"
    OPERATION_NOT_ATTEMPTED = 55, False, "not attempted, because an earlier part of the request failed"
    KAFKA_STORAGE_ERROR = 56, True, "a disk of the brokers is full, or has failed"
    LOG_DIR_NOT_FOUND = 57, False, "there is no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, False, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, False, "nothing is known of this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, False, "a reassignment of the partition is under way"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "the principal is neither owner nor renewer of the token"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "delegation tokens may not be requested over this connection",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "not allowed on this delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, False, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, False, "this type of principal is not supported"
    NON_EMPTY_GROUP = 68, False, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, False, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "there is no such fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, True, "the fetch session's epoch is not the one expected"
    LISTENER_NOT_FOUND = 72, True, "the leader has no listener of the name this request came through"
    TOPIC_DELETION_DISABLED = 73, False, "topics may not be deleted here"
    FENCED_LEADER_EPOCH = 74, True, "the leader epoch in the request is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, True, "the leader epoch in the request is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "this version of the API cannot carry the batch's compression"
    STALE_BROKER_EPOCH = 77, False, "the broker registered again since"
    OFFSET_NOT_AVAILABLE = 78, True, "the new leader does not know its high watermark yet"
    MEMBER_ID_REQUIRED = 79, False, "join again with the member id just given"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "the preferred leader is not available"
    GROUP_MAX_SIZE_REACHED = 81, False, "the group is full"
    FENCED_INSTANCE_ID = 82, False, "a newer member uses the same group instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "no replica that may lead is available"
    ELECTION_NOT_NEEDED = 84, True, "the partition needs no election"
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "no reassignment of the partition is under way"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "the group still subscribes to the topic"
    INVALID_RECORD = 87, False, "a record is not valid"
    UNSTABLE_OFFSET_COMMIT = 88, True, "offsets of an open transaction are pending"
    THROTTLING_QUOTA_EXCEEDED = 89, True, "the quota is used up for now"
    PRODUCER_FENCED = 90, False, "a newer producer uses the same transactional id"
    RESOURCE_NOT_FOUND = 91, False, "there is no such resource"
    DUPLICATE_RESOURCE = 92, False, "the resource is named twice"
    UNACCEPTABLE_CREDENTIAL = 93, False, "the credential is too weak or otherwise refused"
    INCONSISTENT_VOTER_SET = 94, False, "sender or receiver is not one of the voters"
    INVALID_UPDATE_VERSION = 95, False, "the feature cannot have this version"
    FEATURE_UPDATE_FAILED = 96, False, "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "the forwarded principal cannot be read"
    SNAPSHOT_NOT_FOUND = 98, False, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, False, "the position is outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, True, "this broker hosts no topic with this id"
    DUPLICATE_BROKER_REGISTRATION = 101, False, "another broker uses this id"
    BROKER_ID_NOT_REGISTERED = 102, False, "no broker is registered under this id"
    INCONSISTENT_TOPIC_ID = 103, True, "the topic id is not the one in the log"
    INCONSISTENT_CLUSTER_ID = 104, False, "the cluster id is another cluster's"
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "topic ids and names are mixed in one fetch session"
    INELIGIBLE_REPLICA = 107, False, "a replica of the new in-sync set may not be in it"
    NEW_LEADER_ELECTED = 108, False, "the change was made, and the leader is another one now"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "the offset has moved to tiered storage"
    FENCED_MEMBER_EPOCH = 110, False, "the member epoch is fenced: give up all partitions and join again"
    UNRELEASED_INSTANCE_ID = 111, False, "another member still uses the group instance id"
    UNSUPPORTED_ASSIGNOR = 112, False, "no member's assignor fits the group"
    STALE_MEMBER_EPOCH = 113, False, "the member epoch is old: try again with the new one"
    MISMATCHED_ENDPOINT_TYPE = 114, False, "the request belongs to another kind of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "this kind of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, False, "there is no such controller"
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "the telemetry subscription is not the present one"
    TELEMETRY_TOO_LARGE = 118, False, "the telemetry data is too large"
    INVALID_REGISTRATION = 119, False, "the broker's registration is not valid"
    TRANSACTION_ABORTABLE = 120, False, "the transaction can only be aborted"
    INVALID_RECORD_STATE = 121, False, "the record is not in a state that can be acknowledged"
    SHARE_SESSION_NOT_FOUND = 122, True, "there is no such share session"
    INVALID_SHARE_SESSION_EPOCH = 123, True, "the share session's epoch is not the one expected"
    FENCED_STATE_EPOCH = 124, False, "the share group's state epoch is another one"
    INVALID_VOTER_KEY = 125, False, "the voter's key is not the replica's"
    DUPLICATE_VOTER = 126, False, "the voter is one already"
    VOTER_NOT_FOUND = 127, False, "there is no such voter"
    INVALID_REGULAR_EXPRESSION = 128, False, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = (
        129,
        False,
        "what the client knows of the cluster is stale: start again from the bootstrap servers",
    )
    STREAMS_INVALID_TOPOLOGY = 130, False, "the topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "the topology's epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, False, "the topology is older than the group's"
    SHARE_SESSION_LIMIT_REACHED = 133, True, "there are too many share sessions"
    GROUP_DELETION_FAILED = 134, False, "the group could not be deleted"
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, False, "the topology's description could not be stored"
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "no controller is registered under this id"
