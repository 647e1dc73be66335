"""Apache Kafka 4.4.0 nodes in the same network and under the same faults: the harness's own judge.

Owns: their properties and the formatting of their directories. What the checker says of Kafka without power
loss should be nothing; what it does say is looked at before Lockstep is blamed for the same.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from compat_tests.kafka_jars import classpath, java_command
from compat_tests.targets import kafka_uuid
from tests.torture.cluster import PEER_PORT, SETTINGS, Cluster, ClusterFailed, Node

LOG4J = Path(__file__).resolve().parent.parent.parent / "compat_tests" / "java" / "log4j2.properties"
OWN_SETTINGS = ("lockstep.", "message.max.bytes")


class KafkaCluster(Cluster):
    """As `Cluster`; brokers that are controllers, too, min.insync.replicas 2."""

    name = "kafka"
    _cluster_id = ""

    def command(self, node: Node, settings: Mapping[str, str]) -> list[str]:
        """Writes the node's properties and formats its directory."""
        self._cluster_id = self._cluster_id or kafka_uuid()
        copies, least = str(min(3, self.size)), str(min(2, self.size))
        address = self.network.address(node.host)
        voters = (
            f"{each}@{self.network.address(f'n{each}')}:{PEER_PORT}" for each in range(1, self.size + 1)
        )
        properties = {
            **SETTINGS,
            "process.roles": "broker,controller",
            "node.id": str(node.node_id),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap_of(node.node_id)},CONTROLLER://{address}:{PEER_PORT}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(node.data_dir),
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": least,
            "transaction.state.log.num.partitions": "3",
            "default.replication.factor": copies,
            "min.insync.replicas": least,
            **{key: value for key, value in settings.items() if not key.startswith(OWN_SETTINGS)},
        }
        node.directory.mkdir(parents=True, exist_ok=True)
        path = node.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        java, jars = java_command(), classpath()
        words = [
            "kafka.tools.StorageTool",
            "format",
            "-t",
            self._cluster_id,
            "-c",
            str(path),
            "--ignore-formatted",
        ]
        done = subprocess.run(
            [java, "-Xmx128M", "-XX:TieredStopAtLevel=1", "-cp", jars, *words],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ClusterFailed(f"kafka.tools.StorageTool format failed:\n{done.stdout}{done.stderr}")
        options = ["-Xmx512M", "-Xms256M", "-XX:+UseG1GC", f"-Dlog4j2.configurationFile={LOG4J}"]
        return [*self.network.inside(node.host), java, *options, "-cp", jars, "kafka.Kafka", str(path)]
