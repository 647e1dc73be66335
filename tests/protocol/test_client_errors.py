"""Errors of clients: what Kafka means, in words, and the same in another process."""

from __future__ import annotations

import pickle

from lockstep.protocol.client_errors import BrokerError, describe_socket_error
from lockstep.protocol.errors import ErrorCode
from tests.support.cases import each_case


def test_a_rejection_has_kafkas_meaning() -> None:
    error = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t, partition 0")
    assert str(error) == "t, partition 0: this broker does not lead the partition (NOT_LEADER_OR_FOLLOWER)"
    assert str(BrokerError(44, "t", "as the broker put it")) == "t: as the broker put it (POLICY_VIOLATION)"
    assert str(BrokerError(12345, "t")) == "t: an error this client does not know (12345)"


def test_errors_survive_pickling() -> None:
    error = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t, partition 0", "moved")
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.about, again.message) == (error.code, error.about, error.message)
    assert str(again) == str(error)


@each_case(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "connection refused; is a broker running there?"),
        (OSError(113, "No route to host"), "no route to host"),
        (OSError("odd"), "odd"),
    ],
)
def test_sockets_in_words(error: OSError, words: str) -> None:
    assert describe_socket_error(error) == words
