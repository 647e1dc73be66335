"""Handlers of requests that the controller serves, or that change the metadata that it records.

| subject | handlers |
|---|---|
| topics | `create_topics`, `create_partitions`, `delete_topics` |
| replicas | `elect_leaders`, `alter_partition_reassignments`, `list_partition_reassignments` |
| configurations | `describe_configs`, `alter_configs`, `incremental_alter_configs`, `list_config_resources` |
| ACLs | `create_acls`, `delete_acls`, `describe_acls` |
| the controller quorum | `describe_quorum`; `add_raft_voter`, `remove_raft_voter` (both are rejected) |
| removal of nodes (rejected) | `unregister_broker`, `unregister_controller` |
| features (their levels are fixed) | `update_features` |
| log directories (each node has one) | `alter_replica_log_dirs` |
| the command `lockstep cluster` | `lockstep_cluster` |
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.controller.acl_changes import AclChanges
from lockstep.broker.controller.alter_configs_shared import ConfigAlteration
from lockstep.broker.controller.api.add_raft_voter import AddRaftVoter
from lockstep.broker.controller.api.alter_configs import AlterConfigs
from lockstep.broker.controller.api.alter_partition_reassignments import AlterPartitionReassignments
from lockstep.broker.controller.api.alter_replica_log_dirs import AlterReplicaLogDirs
from lockstep.broker.controller.api.create_acls import CreateAcls
from lockstep.broker.controller.api.create_partitions import CreatePartitions
from lockstep.broker.controller.api.create_topics import CreateTopics
from lockstep.broker.controller.api.delete_acls import DeleteAcls
from lockstep.broker.controller.api.delete_topics import DeleteTopics
from lockstep.broker.controller.api.describe_acls import DescribeAcls
from lockstep.broker.controller.api.describe_configs import DescribeConfigs
from lockstep.broker.controller.api.describe_quorum import DescribeQuorum
from lockstep.broker.controller.api.elect_leaders import ElectLeaders
from lockstep.broker.controller.api.incremental_alter_configs import IncrementalAlterConfigs
from lockstep.broker.controller.api.list_config_resources import ListConfigResources
from lockstep.broker.controller.api.list_partition_reassignments import ListPartitionReassignments
from lockstep.broker.controller.api.lockstep_cluster import LockstepCluster
from lockstep.broker.controller.api.remove_raft_voter import RemoveRaftVoter
from lockstep.broker.controller.api.unregister_broker import UnregisterBroker
from lockstep.broker.controller.api.unregister_controller import UnregisterController
from lockstep.broker.controller.api.update_features import UpdateFeatures
from lockstep.broker.controller.cluster_admin import ClusterAdmin
from lockstep.broker.controller.cluster_status import ClusterStatus, GroupReports
from lockstep.broker.controller.damage_reports import DamageReports
from lockstep.broker.controller.topics import Topics
from lockstep.broker.controller.transfer_requests import TransferRequests
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.peers.controller_quorum import ControllerQuorum
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.quotas.quota_manager import QuotaManager
from lockstep.broker.requests.request_context import RequestHandler


def build_handlers(
    cluster: MetadataCache,
    nodes: NodeRegistry,
    topics: Topics,
    alteration: ConfigAlteration,
    quotas: QuotaManager,
    authorizer: Authorizer = ALLOW_ALL,
) -> list[RequestHandler]:
    """Builds the handlers of topics, replicas, configurations and ACLs, and those that reject fixed
    settings."""
    acls, acl_changes = cluster.image.acls, AclChanges(cluster.image, topics)
    return [
        AddRaftVoter(cluster, authorizer),
        AlterConfigs(alteration),
        AlterPartitionReassignments(cluster, nodes, topics, authorizer),
        AlterReplicaLogDirs(cluster, authorizer),
        CreateAcls(acl_changes, authorizer),
        CreatePartitions(cluster, nodes, topics, quotas, authorizer),
        CreateTopics(cluster, nodes, topics, quotas, authorizer),
        DeleteAcls(acls, acl_changes, authorizer),
        DeleteTopics(cluster, topics, quotas, authorizer),
        DescribeAcls(acls, authorizer),
        DescribeConfigs(cluster, authorizer),
        IncrementalAlterConfigs(alteration),
        ListConfigResources(cluster, nodes, authorizer),
        ListPartitionReassignments(cluster, authorizer),
        RemoveRaftVoter(cluster, authorizer),
        UnregisterBroker(nodes, authorizer),
        UnregisterController(nodes, authorizer),
        UpdateFeatures(nodes, authorizer),
    ]


def build_cluster_handlers(
    cluster: MetadataCache,
    nodes: NodeRegistry,
    endpoints: NodeEndpoints,
    topics: Topics,
    reports: GroupReports,
    damage_reports: DamageReports,
    transfers: TransferRequests,
    quorum: ControllerQuorum | None,
    clock_ms: Callable[[], int],
    authorizer: Authorizer = ALLOW_ALL,
) -> list[RequestHandler]:
    """Builds the handlers of log groups' leaders and voters, and of the command `lockstep cluster`."""
    status = ClusterStatus(cluster, nodes, endpoints, reports, damage_reports, quorum)
    admin = ClusterAdmin(cluster, nodes, topics, reports, transfers)
    return [
        DescribeQuorum(cluster, nodes, endpoints, clock_ms, authorizer),
        ElectLeaders(cluster, nodes, transfers, authorizer),
        LockstepCluster(cluster, status, admin, damage_reports, authorizer),
    ]
