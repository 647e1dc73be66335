"""The message tables: one module per API with its request, its response and notes on its versions.

Names, versions, types and defaults are those of Apache Kafka 4.4.0's message definitions. The version
range of a table is what the codec knows; what the broker serves is the handlers' business.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from lockstep.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from lockstep.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from lockstep.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from lockstep.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from lockstep.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from lockstep.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from lockstep.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from lockstep.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lockstep.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from lockstep.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from lockstep.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from lockstep.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from lockstep.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from lockstep.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from lockstep.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from lockstep.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from lockstep.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from lockstep.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from lockstep.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from lockstep.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from lockstep.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from lockstep.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from lockstep.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from lockstep.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from lockstep.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from lockstep.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from lockstep.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from lockstep.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from lockstep.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from lockstep.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from lockstep.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from lockstep.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from lockstep.protocol.messages.fetch import FetchRequest, FetchResponse
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lockstep.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lockstep.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lockstep.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from lockstep.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from lockstep.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from lockstep.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from lockstep.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from lockstep.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from lockstep.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataResponse
from lockstep.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from lockstep.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from lockstep.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from lockstep.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from lockstep.protocol.messages.produce import ProduceRequest, ProduceResponse
from lockstep.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from lockstep.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from lockstep.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from lockstep.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from lockstep.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from lockstep.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from lockstep.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from lockstep.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from lockstep.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from lockstep.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

_PAIRS: tuple[tuple[type[Struct], type[Struct]], ...] = (
    (ProduceRequest, ProduceResponse),
    (FetchRequest, FetchResponse),
    (ListOffsetsRequest, ListOffsetsResponse),
    (MetadataRequest, MetadataResponse),
    (OffsetCommitRequest, OffsetCommitResponse),
    (OffsetFetchRequest, OffsetFetchResponse),
    (FindCoordinatorRequest, FindCoordinatorResponse),
    (JoinGroupRequest, JoinGroupResponse),
    (HeartbeatRequest, HeartbeatResponse),
    (LeaveGroupRequest, LeaveGroupResponse),
    (SyncGroupRequest, SyncGroupResponse),
    (DescribeGroupsRequest, DescribeGroupsResponse),
    (ListGroupsRequest, ListGroupsResponse),
    (SaslHandshakeRequest, SaslHandshakeResponse),
    (ApiVersionsRequest, ApiVersionsResponse),
    (CreateTopicsRequest, CreateTopicsResponse),
    (DeleteTopicsRequest, DeleteTopicsResponse),
    (DeleteRecordsRequest, DeleteRecordsResponse),
    (InitProducerIdRequest, InitProducerIdResponse),
    (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    (AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    (AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    (EndTxnRequest, EndTxnResponse),
    (WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    (TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    (DescribeAclsRequest, DescribeAclsResponse),
    (CreateAclsRequest, CreateAclsResponse),
    (DeleteAclsRequest, DeleteAclsResponse),
    (DescribeConfigsRequest, DescribeConfigsResponse),
    (DescribeLogDirsRequest, DescribeLogDirsResponse),
    (CreatePartitionsRequest, CreatePartitionsResponse),
    (DeleteGroupsRequest, DeleteGroupsResponse),
    (ElectLeadersRequest, ElectLeadersResponse),
    (AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    (ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    (DescribeQuorumRequest, DescribeQuorumResponse),
    (OffsetDeleteRequest, OffsetDeleteResponse),
    (DescribeClusterRequest, DescribeClusterResponse),
    (DescribeProducersRequest, DescribeProducersResponse),
    (DescribeTransactionsRequest, DescribeTransactionsResponse),
    (ListTransactionsRequest, ListTransactionsResponse),
    (ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    (ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    (DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
    (AlterConfigsRequest, AlterConfigsResponse),
    (IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    (ListConfigResourcesRequest, ListConfigResourcesResponse),
    (DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    (AlterClientQuotasRequest, AlterClientQuotasResponse),
    (DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse),
    (AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    (SaslAuthenticateRequest, SaslAuthenticateResponse),
    (CreateDelegationTokenRequest, CreateDelegationTokenResponse),
    (RenewDelegationTokenRequest, RenewDelegationTokenResponse),
    (ExpireDelegationTokenRequest, ExpireDelegationTokenResponse),
    (DescribeDelegationTokenRequest, DescribeDelegationTokenResponse),
    (AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse),
    (UpdateFeaturesRequest, UpdateFeaturesResponse),
    (UnregisterBrokerRequest, UnregisterBrokerResponse),
    (AddRaftVoterRequest, AddRaftVoterResponse),
    (RemoveRaftVoterRequest, RemoveRaftVoterResponse),
    (UnregisterControllerRequest, UnregisterControllerResponse),
)

MESSAGES: dict[int, tuple[type[Struct], type[Struct]]] = {
    request.SCHEMA.api_key: (request, response)
    for request, response in _PAIRS
    if request.SCHEMA.api_key is not None
}
"""(request, response) by API key."""
