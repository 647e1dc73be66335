"""Delegation tokens in a cluster: any node takes a request, the controller records it, all log in by it."""

from __future__ import annotations

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.broker.test_delegation_token_logins import create, described, log_in_by_token
from tests.broker.test_sasl_listeners import log_in, sasl
from tests.broker.wire import Client

LISTENERS = "LOGIN://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"


async def cluster_of(start_cluster: StartCluster) -> BrokerCluster:
    texts = {**sasl(), "delegation.token.secret.key": "a secret", "listeners": LISTENERS}
    cluster = await start_cluster(3, **{name.replace(".", "_"): text for name, text in texts.items()})
    await cluster.settled()
    return cluster


async def alice_at(cluster: BrokerCluster, node_id: int) -> Client:
    client = await cluster.client(node_id)
    assert (await log_in(client)).error_code == 0
    return client


async def test_a_token_from_a_node_that_is_not_the_controller(start_cluster: StartCluster) -> None:
    cluster = await cluster_of(start_cluster)
    controller = cluster.leader_of(0)
    assert controller is not None
    other, third = (each for each in cluster.brokers if each != controller)
    alice = await alice_at(cluster, other)
    made = await create(alice)
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (
        0,
        "alice",
        "alice",
    )
    assert await described(alice) == [made.token_id], "the node that was asked has it"

    image = cluster.brokers[third].assembly.image
    await cluster.until(lambda: len(image.tokens) == 1, "token on the third node")
    for node_id in cluster.brokers:
        delegate = await cluster.client(node_id)
        done = await log_in_by_token(delegate, made.token_id, bytes(made.hmac))
        assert done.error_code == 0
        refused = await create(delegate)
        not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert (refused.error_code, node_id) == (not_allowed, node_id), "its node knows how it has logged in"
        ended = await delegate.call(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
        assert (ended.error_code, node_id) == (not_allowed, node_id)
    gone = await alice.call(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
    assert gone.error_code == 0 and await described(alice) == []
