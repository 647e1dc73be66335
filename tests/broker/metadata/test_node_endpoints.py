"""The nodes as one client can reach them."""

from __future__ import annotations

from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from tests.broker.fakes import LISTENER, PORT, FakeMetadata, client


def test_this_node_has_the_address_of_the_clients_listener() -> None:
    metadata = FakeMetadata(broker_rack="r")
    advertised = {LISTENER: ("here", 1), "LAN": ("10.0.0.1", 2)}
    endpoints = NodeEndpoints(metadata.nodes, advertised, metadata.cluster)
    for listener, address in advertised.items():
        own = endpoints.own(client(listener))
        assert (own.node_id, own.host, own.port, own.rack) == (1, *address, "r")
    assert endpoints.own(client("ANOTHER")).host == "here", "the first listener stands for an unknown one"


def test_without_a_host_it_is_where_the_client_connected_to() -> None:
    metadata = FakeMetadata()
    assert metadata.endpoints.own(client()).host == "127.0.0.1"


def test_other_nodes_have_their_recorded_addresses() -> None:
    metadata = FakeMetadata((1, 2))
    both = metadata.endpoints.all(client())
    assert [(each.node_id, each.host, each.port) for each in both] == [
        (1, "127.0.0.1", PORT),
        (2, "host-2", PORT),
    ]
    of_2 = metadata.endpoints.of(2, client())
    assert of_2 is not None and (of_2.host, of_2.rack) == ("host-2", "rack-2")


def test_a_node_that_the_client_cannot_reach_has_no_endpoint() -> None:
    metadata = FakeMetadata((1, 2))
    assert metadata.endpoints.of(2, client("ANOTHER")) is None, "it has no such listener"
    assert metadata.endpoints.of(3, client()) is None, "it is not recorded"
    assert metadata.endpoints.of(-1, client()) is None
