"""The node and the cluster that a certificate is of: two names in it, as URIs.

Pure. A certificate of a node has `lockstep-node:ID` and `lockstep-cluster:CLUSTER` once each among its
subject alternative names. Does not: verify a certificate (`ssl` does), or make one
(`broker/security/certificate_authority.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

NODE_URI: Final = "lockstep-node:"
CLUSTER_URI: Final = "lockstep-cluster:"
MAX_NODE_ID: Final = (1 << 31) - 1
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NODE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")


class NoPeerIdentity(ValueError):
    """Not the names of one node of one cluster; the text names the missing ones."""


class PeerIdentity(NamedTuple):
    """A node of a cluster."""

    cluster_id: str
    node_id: int

    def __str__(self) -> str:
        return f"node {self.node_id} of cluster {self.cluster_id}"

    @property
    def uris(self) -> tuple[str, str]:
        """The names in its certificate."""
        return f"{NODE_URI}{self.node_id}", f"{CLUSTER_URI}{self.cluster_id}"


def is_cluster_id(text: str) -> bool:
    """Returns whether a certificate can name a cluster of this id."""
    return _CLUSTER_ID.fullmatch(text) is not None


def parse_identity(uris: Iterable[str]) -> PeerIdentity:
    """Returns the identity that a certificate's URIs name. Raises NoPeerIdentity."""
    known = list(uris)
    nodes = [each.removeprefix(NODE_URI) for each in known if each.startswith(NODE_URI)]
    clusters = [each.removeprefix(CLUSTER_URI) for each in known if each.startswith(CLUSTER_URI)]
    for prefix, found in ((NODE_URI, nodes), (CLUSTER_URI, clusters)):
        if len(found) != 1:
            how_many = f"{len(found)} names" if found else "no name"
            raise NoPeerIdentity(f"its certificate is of no node: {how_many} {prefix}... in it")
    if not _NODE_ID.fullmatch(nodes[0]) or int(nodes[0]) > MAX_NODE_ID or not is_cluster_id(clusters[0]):
        raise NoPeerIdentity("its certificate is of no node: the name in it is malformed")
    return PeerIdentity(clusters[0], int(nodes[0]))
