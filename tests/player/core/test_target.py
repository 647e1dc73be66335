"""What a target takes of the main stream, by its link and its state."""

from lockstep.player.core.messages import Part
from lockstep.player.core.target import LinkState, Target
from tests.support.cases import each_case


def target() -> Target:
    return Target("a", 0, 1000)


@each_case("link", LinkState)
def test_a_term_counts_while_its_stream_is_not_given_up(link: LinkState) -> None:
    each = target()
    each.link = link
    assert each.has_stream == (link in (LinkState.HANDSHAKE, LinkState.ANSWERED, LinkState.OPEN))


def test_targets_that_may_still_respond_at_the_first_attempt() -> None:
    each = target()
    assert each.awaits_first_connection
    each.health.failures = 1
    assert not each.awaits_first_connection
    answered = target()
    answered.link = LinkState.ANSWERED
    assert not answered.awaits_first_connection


def test_the_main_stream_sends_what_is_not_stored_to_connected_targets() -> None:
    each = target()
    each.last_ack = 5

    def push(position: int) -> list[int]:
        each.push(Part(position, b"x", 1))
        return [part.position for part in each.queue.normal.parts]

    assert push(6) == []  # in S
    each.queue.resume(5)
    assert push(5) == []  # it has that
    assert push(6) == [6]
    each.dropped = True
    assert (push(7), each.accepts_main_stream) == ([6], False)
