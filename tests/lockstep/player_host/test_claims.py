"""Who plays: of several at once one, and terms that only grow, whatever gets lost."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from lockstep.player_host import claims as module
from lockstep.player_host.claim_table import CurrentClaim, LogClaim
from lockstep.player_host.claims import ClaimLost, Claims, ClaimsUnusable
from lockstep.player_host.config import ClaimsConfig
from lockstep.testing.memory_log import Fault, MemoryLog
from tests.lockstep.player_host.claimants import MemoryTopic, check, claims_of, written
from tests.player.driver.doubles import until
from tests.support.cases import each_case

LOG = "cluster/topic/0"
PATIENT = ClaimsConfig(renew_ms=10, lease_ms=600_000)


async def opened(log: MemoryLog, player: str, process: str, settings: ClaimsConfig = PATIENT) -> Claims:
    claims = claims_of(log, player, process, settings)
    await claims.open()
    return claims


async def wait(awaitable: object, seconds: float = 20.0) -> object:
    return await asyncio.wait_for(awaitable, seconds)  # type: ignore[arg-type]


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partitions=1, seed=3)


async def test_of_two_at_once_one_is_refused(log: MemoryLog) -> None:
    anna, bert = await opened(log, "anna", "p1"), await opened(log, "bert", "p2")
    trying = [asyncio.create_task(each.claim(LOG)) for each in (anna, bert)]
    done, pending = await asyncio.wait(trying, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == len(pending) == 1
    (held,) = [each.result() for each in done]
    assert held.claim.player_term == 1
    assert [each.player_term for each in written(log)] == [1]
    for task in pending:
        task.cancel()
    await anna.close()
    await bert.close()


async def test_a_claim_that_is_renewed_stays(log: MemoryLog) -> None:
    anna = await opened(log, "anna", "p1")
    bert = await opened(log, "bert", "p2", ClaimsConfig(renew_ms=10, lease_ms=5000))
    keeping = asyncio.create_task(anna.keep(await anna.claim(LOG)))
    trying = asyncio.create_task(bert.claim(LOG))
    await until(lambda: len(written(log)) > 3)
    assert not trying.done()
    assert {each.player_term for each in written(log)} == {1}
    trying.cancel()
    keeping.cancel()
    await anna.close()
    await bert.close()


async def test_a_silent_claimant_is_succeeded_and_deposed(log: MemoryLog) -> None:
    anna = await opened(log, "anna", "p1")
    bert = await opened(log, "bert", "p2", ClaimsConfig(renew_ms=10, lease_ms=20))
    held = await anna.claim(LOG)
    second = await wait(bert.claim(LOG))
    assert isinstance(second, CurrentClaim)
    assert second.claim.player_term == 2
    with pytest.raises(ClaimLost, match=r"bert has claimed .* in term 2"):
        await wait(anna.keep(held))
    assert [each.player_term for each in written(log)] == [1, 2]
    await anna.close()
    await bert.close()


async def test_a_renewal_is_refused_before_the_other_claim_is_read(log: MemoryLog) -> None:
    """A holder that was paused: it renews first, and learns then."""
    anna = await opened(log, "anna", "p1")
    bert = await opened(log, "bert", "p2")
    held = await anna.claim(LOG)
    log.suspend_subscription(0)
    keeping = asyncio.create_task(anna.keep(held))
    bert_offset = log.end(0)
    log.resume_subscription(0)
    await wait(bert.claim(LOG, at_once=True))
    with pytest.raises(ClaimLost):
        await wait(keeping)
    mine = [each for each in log.entries(0) if each.offset >= bert_offset and b'"p1"' in (each.value or b"")]
    check(written(log))
    assert all(b'"player_term": 1' in (each.value or b"") for each in mine)
    await anna.close()
    await bert.close()


async def test_a_clean_stop_frees_it_at_once(log: MemoryLog) -> None:
    anna, bert = await opened(log, "anna", "p1"), await opened(log, "bert", "p2")
    held = await anna.claim(LOG)
    waiting = asyncio.create_task(bert.claim(LOG))
    await anna.release(held)
    second = await wait(waiting)
    assert isinstance(second, CurrentClaim)
    assert second.claim.player_term == 2
    assert anna.holder("another") is None
    await anna.release(held)  # too late: nothing happens
    assert [each.player for each in written(log)] == ["anna", None, "bert"]
    await anna.close()
    await bert.close()


async def test_a_process_of_the_same_name_takes_over_at_its_start(log: MemoryLog) -> None:
    first = await opened(log, "anna", "p1")
    held = await first.claim(LOG)
    again = await opened(log, "anna", "p2")
    second = await wait(again.claim(LOG))
    assert isinstance(second, CurrentClaim)
    assert second.claim.player_term == 2
    with pytest.raises(
        ClaimLost, match=r"^another process of the name anna has claimed .* names of their own"
    ):
        await wait(first.keep(held))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(first.claim(LOG), 0.1)
    for each in (first, again):
        await each.close()


async def test_a_term_above_what_a_target_has_seen(log: MemoryLog) -> None:
    anna = await opened(log, "anna", "p1")
    held = await anna.claim(LOG, above_term=41)
    assert held.claim.player_term == 42
    await anna.close()


@pytest.mark.parametrize("fault", list(Fault))
async def test_answers_that_get_lost(log: MemoryLog, fault: Fault) -> None:
    anna = await opened(log, "anna", "p1")
    log.fault_next(fault)
    held = await wait(anna.claim(LOG))
    assert isinstance(held, CurrentClaim)
    assert held.claim.player_term == 1
    log.fault_next(fault)
    keeping = asyncio.create_task(anna.keep(held))
    await until(lambda: len(log.entries(0)) >= 4)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    log.fault_next(fault)
    await wait(anna.release(held))
    assert written(log)[-1].player is None
    check(written(log))
    await anna.close()


async def test_reasons_why_claims_cannot_be_read(log: MemoryLog) -> None:
    """Brokers that take no claims, or do not let them be read, until they do."""
    topic = MemoryTopic(log)
    anna = Claims(topic, "anna", PATIENT, "p1")
    await anna.open()
    held = await anna.claim(LOG)
    keeping = asyncio.create_task(anna.keep(held))
    log.expire_next(20)
    await until(lambda: anna.problem(LOG) == "its claim cannot be written: as the test wants it")
    assert anna.problem("another") == ""
    await until(lambda: anna.problem(LOG) == "")
    log.fault_next(*[Fault.LOST] * 20)
    await until(lambda: anna.problem(LOG) == f"its claim cannot be written: {Fault.LOST.value}")
    await until(lambda: anna.problem(LOG) == "")
    assert not keeping.done()
    keeping.cancel()
    topic.unread = "no answer"
    assert anna.problem(LOG) == "claims cannot be read: no answer"
    await anna.close()


async def test_a_newer_claim_ends_the_problem_of_one_that_was_not_written(log: MemoryLog) -> None:
    """Whoever stands by has nothing to write any more."""
    anna, bert = await opened(log, "anna", "p1"), await opened(log, "bert", "p2")
    keeping = asyncio.create_task(anna.keep(await anna.claim(LOG)))
    await until(lambda: bert.holder(LOG) is not None)
    log.suspend_subscription(0)
    count = len(written(log))
    await until(lambda: len(written(log)) > count)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    log.expire_next()
    trying = asyncio.create_task(bert.claim(LOG, at_once=True))
    await until(lambda: bert.problem(LOG) != "")
    trying.cancel()
    log.resume_subscription(0)
    await until(lambda: bert.problem(LOG) == "")
    await anna.close()
    await bert.close()


async def test_a_fence_that_fails(log: MemoryLog) -> None:
    """The lock alone keeps out what may still come."""
    log.fence_fault_rate = 1.0
    anna = await opened(log, "anna", "p1")
    log.fault_next(Fault.PENDING)
    held = await wait(anna.claim(LOG))
    log.deliver_pending()
    assert isinstance(held, CurrentClaim)
    assert len(written(log)) == 1
    await anna.close()


async def test_unusable_topics_are_reported(log: MemoryLog) -> None:
    anna = await opened(log, "anna", "p1")
    log.refuse_next(reason="LOCKS_OFF", is_final=True)
    with pytest.raises(ClaimsUnusable, match="LOCKS_OFF"):
        await wait(anna.claim(LOG))
    log.fail_next()
    with pytest.raises(ClaimsUnusable, match="as the test wants it"):
        await wait(anna.claim(LOG))
    log.expire_next()
    assert await wait(anna.claim(LOG))
    await anna.close()
    with pytest.raises(ClaimsUnusable, match="more than one partition"):
        await claims_of(MemoryLog(partitions=2), "anna", "p1").open()


async def test_what_is_no_claim_is_passed_over(log: MemoryLog, caplog: pytest.LogCaptureFixture) -> None:
    log.put(0, b"nonsense")
    anna = await opened(log, "anna", "p1")
    assert "is no claim" in caplog.text
    assert (await anna.claim(LOG)).claim.player_term == 1
    await anna.close()


async def test_old_claims_are_deleted(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SUPERSEDED_RECORDS", 5)
    anna = await opened(log, "anna", "p1")
    late = await opened(log, "bert", "p2")
    late._topic.suspend_subscription(0)  # type: ignore[attr-defined]
    keeping = asyncio.create_task(anna.keep(await anna.claim(LOG)))
    await until(lambda: log.entries(0)[0].offset > 0)
    keeping.cancel()
    reader = await opened(log, "clara", "p3")
    late._topic.resume_subscription(0)  # type: ignore[attr-defined]
    await until(lambda: late.holder(LOG) is not None)
    for each in (late, reader):
        found = each.holder(LOG)
        assert found is not None
        assert (found.player, found.player_term) == ("anna", 1)
    for each in (late, anna, reader):
        await each.close()


@pytest.mark.parametrize("is_given_up", [True, False])
async def test_a_log_that_is_played_no_more_keeps_nothing_from_being_deleted(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch, is_given_up: bool
) -> None:
    """Its last claim moves to the end, as it is."""
    monkeypatch.setattr(module, "MAX_SUPERSEDED_RECORDS", 5)
    bert = await opened(log, "bert", "p2")
    held = await bert.claim("cluster/former/0", above_term=6)
    if is_given_up:
        await bert.release(held)
    await bert.close()
    left = written(log)[-1]
    anna = await opened(log, "anna", "p1")
    keeping = asyncio.create_task(anna.keep(await anna.claim(LOG)))
    if not is_given_up:
        await until(lambda: len(log.entries(0)) > 20)
        assert written(log)[0] == left, "perhaps somebody stands by for it"
        monkeypatch.setattr(module, "ABANDONED_MS", 1)
    await until(lambda: log.entries(0)[0].offset > 20)
    keeping.cancel()
    assert [each for each in written(log) if each.log_id == left.log_id][-1] == left
    assert len(log.entries(0)) < 20
    check(written(log))
    later = await opened(log, "bert", "p3")
    assert (await wait(later.claim(left.log_id))).claim.player_term == 8  # type: ignore[attr-defined]
    for each in (anna, later):
        await each.close()


@each_case("seed", range(8))
async def test_terms_only_grow_whatever_happens(seed: int) -> None:
    """Three processes, two logs, lost answers, processes that die, stand still, stop cleanly."""
    log = MemoryLog(partitions=1, seed=seed)
    log.fault_rate = log.fence_fault_rate = 0.2
    log.gap_rate = 0.1
    log.max_delay_s = 0.004
    draw = random.Random(seed)
    settings = ClaimsConfig(renew_ms=10, lease_ms=25)

    async def live(name: str, number: int) -> None:
        claims = claims_of(log, name, f"{name}{number}", settings)
        await claims.open()
        playing = [asyncio.create_task(_play(claims, f"log-{each}", draw)) for each in range(2)]
        await asyncio.sleep(draw.uniform(0.05, 0.2))
        for each in playing:
            each.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
        await claims.close()

    async def lives(name: str) -> None:
        for number in range(4):
            await live(name, number)

    await wait(asyncio.gather(*map(lives, ("anna", "bert", "clara"))), 60)
    log.deliver_pending()
    found = written(log)
    check(found)
    assert max(each.player_term for each in found) > 3


async def _play(claims: Claims, log_id: str, draw: random.Random) -> None:
    while True:
        held = await claims.claim(log_id)
        with contextlib.suppress(ClaimLost, TimeoutError):
            async with asyncio.timeout(draw.uniform(0.01, 0.1)):
                await claims.keep(held)
        if draw.random() < 0.5:
            await claims.release(held)
        else:
            await asyncio.sleep(draw.uniform(0, 0.06))


def test_the_checker_finds_what_is_wrong() -> None:
    one = LogClaim(LOG, 1, "anna", "p1", 0)
    for bad in (
        [one, one._replace(process="p2")],
        [one._replace(player_term=2), one],
        [one._replace(player=None), one],
    ):
        with pytest.raises(AssertionError):
            check(bad)
