"""What a claim's record is, and when a log may be claimed."""

from __future__ import annotations

from lockstep.player_host.claim_table import ClaimTable, LogClaim, claim_of, record_of
from lockstep.transactions.model import Record
from tests.support.cases import each_case

LOG = "cluster/topic/0"
HERS = LogClaim(LOG, 3, "anna", "p1", 17)
LEASE_MS = 100


def table() -> ClaimTable:
    return ClaimTable("bert", "p2")


def test_a_claim_as_a_record() -> None:
    assert claim_of(record_of(HERS)) == HERS
    given_up = HERS._replace(player=None)
    assert claim_of(record_of(given_up)) == given_up


@each_case(
    "value",
    [
        None,
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"{}",
        b'{"player": "a", "player_term": 0, "process": "p", "taken_at_ms": 1}',
        b'{"player": "a", "player_term": "1", "process": "p", "taken_at_ms": 1}',
        b'{"player": 1, "player_term": 1, "process": "p", "taken_at_ms": 1}',
        b'{"player": "a", "player_term": 1, "process": null, "taken_at_ms": 1}',
        b'{"player": "a", "player_term": 1, "process": "p", "taken_at_ms": null}',
    ],
)
def test_what_is_no_claim(value: bytes | None) -> None:
    assert claim_of(Record(value, LOG.encode())) is None


def test_a_claim_of_no_log() -> None:
    assert claim_of(Record(record_of(HERS).value)) is None
    assert claim_of(Record(record_of(HERS).value, b"\xff")) is None


def test_a_log_that_nobody_has_claimed() -> None:
    claims = table()
    claims.start_complete()
    assert claims.due_ms(LOG, LEASE_MS) == 0
    assert claims.oldest is None
    assert claims.next_claim(LOG, 0, 5) == LogClaim(LOG, 1, "bert", "p2", 5)
    assert claims.next_claim(LOG, 8, 5).player_term == 9


def test_a_lease_counts_from_reading() -> None:
    claims = table()
    claims.read(HERS, 10, 1000)
    claims.start_complete()
    assert claims.due_ms(LOG, LEASE_MS) == 1100
    claims.read(HERS, 11, 1050)
    assert claims.due_ms(LOG, LEASE_MS) == 1150, "she has renewed it"
    assert claims.next_claim(LOG, 0, 5).player_term == 4
    assert claims.next_claim(LOG, 3, 5).player_term == 4
    assert claims.due_ms("another", LEASE_MS) == 0


def test_what_was_given_up_is_free() -> None:
    claims = table()
    claims.read(HERS._replace(player=None), 10, 1000)
    assert claims.due_ms(LOG, LEASE_MS) == 0
    assert claims.next_claim(LOG, 0, 5).player_term == 4


def test_what_is_ones_own() -> None:
    claims = table()
    claims.read(LogClaim(LOG, 4, "bert", "p2", 1), 10, 1000)
    assert claims.is_own(claims.newest[LOG])
    assert claims.due_ms(LOG, LEASE_MS) == 0
    claims.read(LogClaim(LOG, 4, None, "p2", 1), 11, 1000)
    assert not claims.is_own(claims.newest[LOG])


def test_what_an_earlier_process_of_that_name_left() -> None:
    claims = table()
    claims.read(LogClaim(LOG, 4, "bert", "p1", 1), 10, 1000)
    assert claims.due_ms(LOG, LEASE_MS) == 1100
    claims.start_complete()
    assert claims.due_ms(LOG, LEASE_MS) == 0, "it was there at the start"
    claims.read(LogClaim(LOG, 4, "bert", "p1", 1), 11, 1010)
    assert claims.due_ms(LOG, LEASE_MS) == 1110, "it lives"


def test_what_is_not_needed_any_more() -> None:
    claims = table()
    claims.read(HERS, 10, 0)
    claims.read(HERS._replace(log_id="other"), 11, 0)
    claims.read(HERS, 12, 0)
    assert claims.oldest is not None and claims.oldest.offset == 11
