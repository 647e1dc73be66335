"""The node and cluster that a certificate names."""

from __future__ import annotations

import pytest

from lockstep.storage.peers.peer_identity import NoPeerIdentity, PeerIdentity, is_cluster_id, parse_identity


def test_an_identity_is_parsed_from_its_names() -> None:
    for identity in (PeerIdentity("Wbd22PCGcYECzcimVPLOeg", 0), PeerIdentity("-_a", 2**31 - 1)):
        assert parse_identity(["https://else.where", *reversed(identity.uris)]) == identity
    assert str(PeerIdentity("c", 3)) == "node 3 of cluster c"


@pytest.mark.parametrize(
    ("uris", "problem"),
    [
        ([], "no name lockstep-node:"),
        (["lockstep-node:1"], "no name lockstep-cluster:"),
        (["lockstep-cluster:c"], "no name lockstep-node:"),
        (["lockstep-node:1", "lockstep-node:2", "lockstep-cluster:c"], "2 names lockstep-node:"),
        (["lockstep-node:1", "lockstep-cluster:c", "lockstep-cluster:d"], "2 names lockstep-cluster:"),
        *(
            (["lockstep-node:" + each, "lockstep-cluster:c"], "malformed")
            for each in ("", "-1", "01", "1 ", "x")
        ),
        (["lockstep-node:2147483648", "lockstep-cluster:c"], "malformed"),
        (["lockstep-node:\u0661", "lockstep-cluster:c"], "malformed"),
        *((["lockstep-node:1", "lockstep-cluster:" + each], "malformed") for each in ("", "a/b", "a" * 65)),
        (["LOCKSTEP-NODE:1", "lockstep-cluster:c"], "no name lockstep-node:"),
    ],
)
def test_other_names_are_of_no_node(uris: list[str], problem: str) -> None:
    with pytest.raises(NoPeerIdentity, match=problem):
        parse_identity(uris)


def test_cluster_ids() -> None:
    assert is_cluster_id("Wbd22PCGcYECzcimVPLOeg") and not is_cluster_id("") and not is_cluster_id("a\n")
