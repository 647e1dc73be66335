"""The same scenes over every transport: what the interface promises to a player and to a target."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from lockstep.player.core.messages import Batch
from lockstep.player.transport.interface import Handshake, Responder, Stream
from tests.player.transport.ends import PATIENCE_S, Heard, Served, Target, batch, handshake, shape
from tests.player.transport.kinds import Kind

MiB = 1 << 20


async def test_a_greeting_arrives_whole_and_is_answered(kind: Kind) -> None:
    target, heard = Target(), Heard()
    address = await kind.serve(target)
    kind.streams().open(address, handshake(target_term=4, first_position=0), heard)
    assert await heard.told("greeted") == -1
    came = (await target.serving()).handshake
    hello = came.hello
    assert (hello.log_id, hello.player_term, hello.target_term) == ("cluster/topic/0", 7, 4)
    assert (hello.first_position, came.topic, came.partition) == (0, "orders", 3)
    assert heard.all == [("greeted", -1)]


async def test_batches_arrive_as_they_were_sent_dummies_too(kind: Kind) -> None:
    target, heard = Target(), Heard()
    address = await kind.serve(target)
    stream = kind.streams().open(address, handshake(), heard)
    await heard.told("greeted")
    sent = [
        batch(0, b"one"),
        batch(1, None),
        batch(2, b"x" * 200_000, None, b"three", None),
        batch(6, *[b"%d" % number for number in range(1000)]),
        batch(2**62, b"far"),
    ]
    for count, each in enumerate(sent, 1):
        stream.write(each)
        await heard.told("written", count)
    await heard.until(lambda: heard.of("acknowledged")[-1:] == [2**62 + 1])
    assert [shape(each) for each in (await target.serving()).batches] == [shape(each) for each in sent]
    acknowledged = heard.of("acknowledged")
    assert acknowledged == sorted(acknowledged, key=lambda position: int(str(position)))


async def test_each_batch_is_written_once_and_heartbeats_are_not_batches(kind: Kind) -> None:
    target, heard = Target(acknowledges=False), Heard()
    address = await kind.serve(target)
    stream = kind.streams().open(address, handshake(), heard)
    await heard.told("greeted")
    served = await target.serving()
    stream.heartbeat()
    assert await heard.told("acknowledged") == 0
    stream.write(batch(0, b"one"))
    await heard.told("written")
    stream.heartbeat()
    await heard.told("acknowledged", 2)
    assert heard.of("written") == [None]
    assert (served.heartbeats, heard.of("acknowledged")) == (2, [0, 1])


async def test_an_acknowledgement_does_not_wait_for_the_greeting_or_the_other_streams(kind: Kind) -> None:
    """Several streams of one player at one target, each on its own."""
    target = Target(acknowledges=False)
    address = await kind.serve(target)
    streams = kind.streams()
    ends: list[tuple[Heard, Stream]] = []
    for number in range(1, 6):
        heard = Heard()
        ends.append((heard, streams.open(address, handshake(number), heard)))
    for heard, stream in ends:
        await heard.told("greeted")
        stream.write(batch(0, b"payload"))
    await target.until(lambda: len(target.served) == 5)
    for served in target.served:
        await served.until(lambda served=served: bool(served.batches))  # type: ignore[misc]
        served.responder.acknowledge(served.handshake.hello.target_term * 10)
    for number, (heard, _) in enumerate(ends, 1):
        assert await heard.told("acknowledged") == number * 10
    ends[0][1].close()
    await next(each for each in target.served if each.handshake.hello.target_term == 1).until_closed()
    ends[1][1].heartbeat()
    await ends[1][0].told("acknowledged", 2)


async def test_of_many_acknowledgements_the_last_one_always_comes(kind: Kind) -> None:
    target, heard = Target(acknowledges=False), Heard()
    address = await kind.serve(target)
    kind.streams().open(address, handshake(), heard)
    await heard.told("greeted")
    served = await target.serving()
    for position in range(5000):
        served.responder.acknowledge(position)
    await heard.until(lambda: heard.of("acknowledged")[-1:] == [4999])


async def test_stale_is_sent_and_ends_the_stream(kind: Kind) -> None:
    target, heard = Target(answers_hello=False), Heard()
    address = await kind.serve(target)
    stream = kind.streams().open(address, handshake(), heard)
    served = await target.serving()
    served.responder.reject(9, 2)
    await heard.told("closed")
    assert [kind for kind, _ in heard.all] == ["stale", "closed"]
    assert heard.of("stale") == [9]
    await served.until_closed()
    stream.write(batch(0, b"too late"))
    stream.heartbeat()
    stream.close()
    served.responder.acknowledge(1)
    served.responder.end("again")
    assert len(heard.all) == 2


async def test_a_target_ends_a_stream_with_words(kind: Kind) -> None:
    target, heard = Target(), Heard()
    address = await kind.serve(target)
    stream = kind.streams().open(address, handshake(), heard)
    await heard.told("greeted")
    served = await target.serving()
    stream.write(batch(0, b"one"))
    await heard.told("acknowledged")
    served.responder.end("after 1 came 3, which follows 2: éµ")
    assert "after 1 came 3, which follows 2: éµ" in str(await heard.told("closed"))
    await served.until_closed()
    assert heard.all[-1][0] == "closed"


async def test_a_session_that_fails_ends_its_stream_alone(on_sockets: Kind) -> None:
    class FailingSession(Served):
        def receive(self, batch: Batch) -> None:
            if self.handshake.hello.target_term == 2:
                raise ZeroDivisionError
            super().receive(batch)

    class Failing(Target):
        def open_session(self, handshake: Handshake, responder: Responder) -> Served:
            responder.accept(0)
            return FailingSession(handshake, responder, acknowledges=True)

    target, good, bad = Failing(), Heard(), Heard()
    address = await on_sockets.serve(target)
    streams = on_sockets.streams()
    works = streams.open(address, handshake(1), good)
    fails = streams.open(address, handshake(2), bad)
    await bad.told("greeted")
    await good.told("greeted")
    fails.write(batch(0, b"one"))
    assert "ZeroDivisionError" in str(await bad.told("closed"))
    works.write(batch(0, b"one"))
    await good.told("acknowledged")


async def test_a_player_closes_and_gets_no_more_events(kind: Kind) -> None:
    target, heard = Target(acknowledges=False), Heard()
    address = await kind.serve(target)
    streams = kind.streams()
    stream = streams.open(address, handshake(), heard)
    await heard.told("greeted")
    served = await target.serving()
    stream.close()
    stream.close()
    served.responder.acknowledge(5)
    await served.until_closed()
    served.responder.acknowledge(6)
    again = Heard()
    streams.open(address, handshake(2), again)
    await again.told("greeted")
    assert heard.all == [("greeted", 0)]


async def test_all_streams_of_a_player_close(kind: Kind) -> None:
    target, heard, other = Target(), Heard(), Heard()
    address = await kind.serve(target)
    streams = kind.streams()
    streams.open(address, handshake(1), heard)
    streams.open(address, handshake(2), other)
    await heard.told("greeted")
    await other.told("greeted")
    await streams.close()
    for served in target.served:
        await served.until_closed()
    assert (heard.all, other.all) == ([("greeted", 0)], [("greeted", 0)])


async def test_nobody_listens(kind: Kind) -> None:
    target, heard = Target(), Heard()
    address = await kind.serve(target)
    await kind.server.close(0)
    streams = kind.streams()
    stream = streams.open(address, handshake(), heard)
    stream.write(batch(0, b"one"))
    reason = str(await heard.told("closed"))
    assert [kind for kind, _ in heard.all] == ["closed"]
    assert any(words in reason.lower() for words in ("refused", "no such file", "nothing listens")), reason
    # and it does not matter for the next try
    await kind.serve(target, address)
    again = Heard()
    streams.open(address, handshake(), again)
    await again.told("greeted")


async def test_a_target_stops(kind: Kind) -> None:
    target, heard = Target(acknowledges=False), Heard()
    address = await kind.serve(target)
    stream = kind.streams().open(address, handshake(), heard)
    await heard.told("greeted")
    stream.write(batch(0, b"one"))
    served = await target.serving()
    await served.until(lambda: bool(served.batches))
    served.responder.acknowledge(1)
    await kind.server.close()
    await served.until_closed()
    assert "the target is stopping" in str(await heard.told("closed"))
    assert heard.of("acknowledged") == [1]  # what there was still to say


async def test_a_target_takes_no_more_than_it_has_room_for(kind: Kind) -> None:
    target, heard = Target(), Heard()
    address = await kind.serve(target)
    stream = kind.streams().open(address, handshake(), heard)
    await heard.told("greeted")
    served = await target.serving()
    served.room.clear()
    payload = b"x" * MiB
    number = 64

    async def write_all() -> None:
        for previous in range(number):
            stream.write(batch(previous, payload))
            await heard.told("written", previous + 1)

    writing = asyncio.create_task(write_all())
    # the sender stands still: nothing is written in what is a long time for a machine that is not busy
    seen, quiet = -1, 0
    async with asyncio.timeout(PATIENCE_S):
        while quiet < 5:
            await asyncio.sleep(0.05)
            quiet = quiet + 1 if len(heard.of("written")) == seen else 0
            seen = len(heard.of("written"))
    assert len(served.batches) <= 2
    assert seen < number / 2, "buffers took it all"
    served.room.set()
    await writing
    await heard.until(lambda: heard.of("acknowledged")[-1:] == [number])
    assert [each.last_position for each in served.batches] == list(range(1, number + 1))


async def test_a_batch_just_within_the_limit_and_one_above_it(on_sockets: Kind) -> None:
    target, heard = Target(), Heard()
    address = await on_sockets.serve(target)
    stream = on_sockets.streams().open(address, handshake(), heard)
    await heard.told("greeted")
    stream.write(batch(0, b"x" * (4 * MiB - 100)))
    assert await heard.told("acknowledged") == 1
    stream.write(batch(1, b"x" * 4 * MiB))
    reason = str(await heard.told("closed"))
    assert f"at most {4 * MiB}" in reason and "entries 2 to 2" in reason
    assert len((await target.serving()).batches) == 1


async def test_a_batch_above_the_limit_of_the_target(on_sockets: Kind) -> None:
    target, heard = Target(), Heard()
    address = await on_sockets.serve(target, message_bytes=MiB)
    stream = on_sockets.streams().open(address, handshake(), heard)
    await heard.told("greeted")
    stream.write(batch(0, b"x" * 2 * MiB))
    assert str(MiB) in str(await heard.told("closed"))
    served = await target.serving()
    await served.until_closed()
    assert not served.batches


async def test_a_peer_that_accepts_and_sends_nothing(on_sockets: Kind) -> None:
    """Half open, or stopped: nothing is told, and closing does not wait for it."""
    if on_sockets.name.endswith("-unix"):
        listener = socket.socket(socket.AF_UNIX)
        address = on_sockets.address()
        listener.bind(address.removeprefix("unix:"))
    else:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    listener.listen()
    listener.setblocking(False)
    try:
        heard = Heard()
        streams = on_sockets.streams()
        stream = streams.open(address, handshake(), heard)
        async with asyncio.timeout(PATIENCE_S):
            accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
        stream.write(batch(0, b"x" * MiB))
        stream.close()
        async with asyncio.timeout(PATIENCE_S):
            await streams.close()
        assert not heard.of("closed") and not heard.of("greeted")
        accepted.close()
    finally:
        listener.close()


async def test_two_targets_cannot_listen_at_one_address(kind: Kind) -> None:
    if kind.name.endswith("-unix"):
        return  # the newer one takes the path, as with every server
    address = await kind.serve(Target())
    try:
        await kind.serve(Target(), address)
    except OSError as error:
        assert "address already in use" in str(error) or kind.name == "memory"
    else:
        raise AssertionError("two targets at one address")


SERVER = """
import asyncio, sys
from pathlib import Path
from tests.player.transport.ends import Target
from tests.player.transport.kinds import opened

async def main(name, folder):
    async with opened(name, Path(folder)) as kind:
        print(await kind.serve(Target()), flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_target_is_killed_or_stopped(on_sockets: Kind, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, on_sockets.name, str(tmp_path)), stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().strip()
        stopped, killed = Heard(), Heard()
        streams = on_sockets.streams()
        stream = streams.open(address, handshake(1), stopped)
        await stopped.told("greeted")
        streams.open(address, handshake(2), killed)
        await killed.told("greeted")
        os.kill(process.pid, signal.SIGSTOP)
        stream.heartbeat()
        stream.close()
        again = Heard()
        stream = streams.open(address, handshake(3), again)
        stream.close()
        process.kill()
        assert await killed.told("closed")
        assert (stopped.all, again.all) == ([("greeted", 0)], [])
        assert [kind for kind, _ in killed.all] == ["greeted", "closed"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
