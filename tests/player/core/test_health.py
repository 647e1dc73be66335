"""What heartbeats conclude, and how long a target is left alone."""

from lockstep.player.core.health import Health, HealthVerdict, backoff_ms
from lockstep.player.core.settings import NEVER_MS, PlayerSettings
from tests.support.cases import each_case

SETTINGS = PlayerSettings(
    heartbeat_ms=100, silent_heartbeats=3, stuck_heartbeats=4, backoff_ms=10, longest_backoff_ms=100
)
LATE = 1 << 30


def connected() -> Health:
    health = Health(0)
    health.on_connected(0, SETTINGS)
    return health


def looks(health: Health, count: int, owes: bool, received: bool = True) -> list[HealthVerdict]:
    found = []
    for _ in range(count):
        health.received = received
        found.append(health.count_heartbeat(owes, health.next_event_ms, SETTINGS))
    return found


def test_a_heartbeat_each_interval() -> None:
    health = connected()
    assert health.count_heartbeat(False, 99, SETTINGS) is HealthVerdict.WAIT
    assert health.count_heartbeat(False, 100, SETTINGS) is HealthVerdict.HEARTBEAT
    assert health.count_heartbeat(False, 199, SETTINGS) is HealthVerdict.WAIT


def test_silence_is_counted_from_the_last_word() -> None:
    health = connected()
    assert looks(health, 2, False) == [HealthVerdict.HEARTBEAT] * 2
    assert looks(health, 3, False, received=False) == [
        HealthVerdict.HEARTBEAT,
        HealthVerdict.HEARTBEAT,
        HealthVerdict.NO_RESPONSE,
    ]


def test_a_player_that_was_held_up_concludes_nothing_from_that() -> None:
    health = connected()
    assert health.count_heartbeat(True, LATE, SETTINGS) is HealthVerdict.HEARTBEAT
    assert (
        health.count_heartbeat(True, LATE + 50, SETTINGS) is HealthVerdict.WAIT
    )  # no heartbeats made up for


def test_a_target_is_stuck_where_it_responds_and_stores_nothing() -> None:
    health = connected()
    assert looks(health, 20, False) == [HealthVerdict.HEARTBEAT] * 20  # nothing is owed
    assert looks(health, 4, True) == [HealthVerdict.HEARTBEAT] * 3 + [HealthVerdict.NO_PROGRESS]
    health = connected()
    looks(health, 3, True)
    health.on_acknowledged()
    assert looks(health, 4, True) == [HealthVerdict.HEARTBEAT] * 4


def test_patience_doubles_with_each_hang_until_something_is_stored() -> None:
    health = connected()
    health.timed_out_streams = 1
    looks(health, 1, True)  # the handshake counts as progress
    assert looks(health, 8, True)[-1] is HealthVerdict.NO_PROGRESS
    health.on_acknowledged()
    assert health.timed_out_streams == 0
    health.on_connected(0, SETTINGS)
    looks(health, 1, True)
    assert looks(health, 4, True)[-1] is HealthVerdict.NO_PROGRESS


def test_patience_with_silence_doubles_where_something_is_owed() -> None:
    health = connected()
    health.timed_out_streams = 1
    looks(health, 1, True)
    assert looks(health, 6, True, received=False) == [HealthVerdict.HEARTBEAT] * 5 + [
        HealthVerdict.NO_RESPONSE
    ]
    health.on_connected(0, SETTINGS)
    looks(health, 1, False)
    assert looks(health, 3, False, received=False) == [HealthVerdict.HEARTBEAT] * 2 + [
        HealthVerdict.NO_RESPONSE
    ]


def test_backoff_doubles_up_to_the_longest() -> None:
    most = [backoff_ms(failures, SETTINGS, lambda n: n - 1) for failures in (1, 2, 3, 4, 5, 1000)]
    least = [backoff_ms(failures, SETTINGS, lambda n: 0) for failures in (1, 2, 3, 4, 5, 1000)]
    assert most == [10, 20, 40, 80, 100, 100]
    assert least == [5, 10, 20, 40, 50, 50]


def test_what_is_due() -> None:
    health = Health(5)
    assert health.next_event_ms == 5
    health.on_failure(100, SETTINGS, lambda n: n - 1)
    health.on_failure(100, SETTINGS, lambda n: n - 1)
    assert (health.failures, health.next_event_ms) == (2, 120)
    health.on_connecting(200, SETTINGS)
    assert health.next_event_ms == 200 + SETTINGS.hello_timeout_ms
    health.on_stopped()
    assert health.next_event_ms == NEVER_MS


@each_case(("owes", "failures"), [(False, 0), (True, 3)])
def test_failures_are_forgotten_where_a_target_stays_and_owes_nothing(owes: bool, failures: int) -> None:
    health = connected()
    health.failures = 3
    looks(health, 1, owes)
    assert health.failures == failures
