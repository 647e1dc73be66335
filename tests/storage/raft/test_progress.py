"""What a leader may send to one member, as answers and timeouts come."""

from lockstep.storage.raft.progress import Progress, SendState
from lockstep.storage.raft.settings import LONG_AGO_MS, RaftSettings

SETTINGS = RaftSettings()


def replicating(match_index: int = 10) -> Progress:
    progress = Progress(2, match_index + 1)
    progress.on_match(match_index, 0)
    assert progress.state is SendState.REPLICATE
    return progress


def test_one_request_until_the_match_is_known() -> None:
    progress = Progress(2, 11)
    assert progress.may_send(4)
    progress.on_sent(12, 100)
    assert (progress.may_send(4), progress.next_index) == (False, 11)
    assert not progress.on_match(0, 0)  # what a heartbeat's answer tells: the guess stays open
    assert progress.state is SendState.PROBE
    assert progress.on_match(12, 0)
    assert (progress.state, progress.next_index, progress.may_send(1)) == (SendState.REPLICATE, 13, True)


def test_a_guess_that_holds_before_its_entries_are_flushed() -> None:
    progress = Progress(2, 11)
    progress.on_sent(15, 100)
    assert progress.on_match(10, 0)
    assert (progress.state, progress.next_index, list(progress.in_flight)) == (
        SendState.REPLICATE,
        16,
        [(15, 100)],
    )


def test_a_pipeline_continues_where_it_ends() -> None:
    progress = replicating()
    for last in (12, 15):
        assert progress.may_send(2)
        progress.on_sent(last, 100)
    assert (progress.may_send(2), progress.next_index) == (False, 16)
    assert progress.on_match(13, 0)
    assert (progress.may_send(2), progress.next_index) == (True, 16)
    assert not progress.on_match(12, 0)  # overtaken
    assert (progress.match_index, list(progress.in_flight)) == (13, [(15, 100)])


def test_a_mismatch_in_a_pipeline_goes_back_to_the_match() -> None:
    progress = replicating()
    progress.on_sent(12, 100)
    progress.on_sent(15, 100)
    progress.on_rejection(9, 3)  # stale: it has matched since
    assert progress.state is SendState.REPLICATE
    progress.on_rejection(12, 10)
    assert (progress.state, progress.next_index, progress.may_send(2)) == (SendState.PROBE, 11, True)


def test_a_wrong_guess_follows_the_hint_and_always_falls() -> None:
    progress = Progress(2, 11)
    progress.on_sent(11, 100)
    progress.on_rejection(9, 4)  # not what was asked last
    assert not progress.may_send(1)
    progress.on_rejection(10, 4)
    assert (progress.next_index, progress.may_send(1)) == (5, True)
    progress.on_sent(4, 100)
    progress.on_rejection(4, 99)  # no hint at all
    assert progress.next_index == 4
    progress.on_sent(3, 100)
    progress.on_rejection(3, -1)
    assert progress.next_index == 1


def test_timeouts() -> None:
    progress = replicating()
    assert not progress.expire(10_000, SETTINGS)  # nothing waits
    progress.on_sent(12, 100)
    assert not progress.expire(299, SETTINGS)
    assert not progress.may_send(1)
    assert not progress.expire(300, SETTINGS)
    assert (progress.state, progress.next_index, progress.may_send(1)) == (SendState.PROBE, 11, True)
    guess = Progress(2, 11)
    guess.on_sent(12, 100)
    assert not guess.expire(300, SETTINGS)
    assert (guess.next_index, guess.may_send(1), guess.timeouts) == (11, True, 1)
    guess.on_response(290, 310)
    assert guess.timeouts == 0


def test_a_member_that_gets_on_is_slow_and_sent_nothing_again() -> None:
    progress = replicating()
    for last in (12, 15, 18):
        progress.on_sent(last, 100)
    progress.on_match(12, 0)
    assert not progress.expire(350, SETTINGS)
    assert (progress.state, len(progress.in_flight)) == (SendState.REPLICATE, 2)
    progress.expire(549, SETTINGS)
    assert progress.state is SendState.REPLICATE, "the timer began anew when the match rose"
    progress.expire(550, SETTINGS)
    assert (progress.state, progress.next_index) == (SendState.PROBE, 13)


def test_a_lost_connection_waits_for_a_sign_of_life() -> None:
    progress = replicating()
    progress.on_sent(12, 100)
    progress.on_lost(150)
    assert (progress.next_index, progress.may_send(1)) == (11, False)
    assert not progress.on_response(140, 160)
    assert progress.may_send(1)
    progress.on_lost(200)
    assert not progress.expire(400, SETTINGS)
    assert progress.may_send(1)


def test_contact_is_when_it_was_sent() -> None:
    progress = Progress(2, 1)
    assert progress.contact_ms == LONG_AGO_MS
    for sent_ms, contact_ms in ((100, 100), (50, 100), (10_000, 200)):  # late; of no clock of ours
        progress.on_response(sent_ms, 200)
        assert progress.contact_ms == contact_ms


def test_a_shipment_stops_entries_until_a_request_can_follow() -> None:
    progress = Progress(2, 5)
    progress.on_sent(5, 100)
    progress.begin_install(200)
    assert (progress.may_send(1), list(progress.in_flight)) == (False, [])
    progress.on_rejection(4, 1)
    assert progress.on_match(6, 9)  # not far enough
    assert progress.state is SendState.INSTALL
    assert not progress.expire(5199, SETTINGS)
    assert progress.expire(5200, SETTINGS)
    assert progress.on_match(9, 9)
    assert (progress.state, progress.next_index) == (SendState.REPLICATE, 10)


def test_a_lost_shipment_begins_again_with_the_next_sign_of_life() -> None:
    progress = Progress(2, 5)
    progress.begin_install(200)
    assert not progress.on_response(190, 210)
    progress.on_lost(220)
    assert progress.on_response(230, 240)
    assert not progress.on_response(230, 240)


def test_a_match_that_its_disk_has_lost_is_found_again() -> None:
    progress = replicating()  # up to 10
    progress.on_sent(12, 100)
    progress.on_rejection(10, 3)  # may be an old answer: asked once more
    assert (progress.state, progress.match_index, progress.next_index) == (SendState.PROBE, 10, 11)
    progress.on_sent(11, 200)
    progress.on_rejection(10, 3)
    assert (progress.match_index, progress.next_index, progress.may_send(1)) == (3, 4, True)
    progress.on_sent(4, 300)
    progress.on_rejection(3, 99)  # no hint
    assert (progress.match_index, progress.next_index) == (2, 3)
    for prev in (2, 1):
        progress.on_sent(prev + 1, 400)
        progress.on_rejection(prev, 0)
    assert (progress.match_index, progress.next_index) == (0, 1)
    progress.on_rejection(0, 0)
    assert progress.next_index == 1
    assert progress.on_match(12, 0)
    assert (progress.state, progress.match_index) == (SendState.REPLICATE, 12)
