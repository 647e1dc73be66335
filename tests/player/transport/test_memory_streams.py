"""What is the transport in memory's alone: a target that is killed."""

from __future__ import annotations

from tests.player.transport.ends import Heard, Target, batch, handshake
from tests.player.transport.memory_streams import MemoryNetwork


async def test_a_target_that_is_lost() -> None:
    network, target, heard = MemoryNetwork(), Target(), Heard()
    server = network.server(target)
    await server.start("here")
    streams = network.streams()
    stream = streams.open("here", handshake(), heard)
    await heard.told("greeted")
    served = await target.serving()
    stream.write(batch(0, b"one"))
    await heard.told("acknowledged")
    served.responder.acknowledge(2)
    server.crash()
    assert await heard.told("closed") == "connection reset"
    await served.until_closed()
    assert heard.of("acknowledged") == [1], "what was under way is lost"
    again = Heard()
    streams.open("here", handshake(2), again)
    assert "nothing listens" in str(await again.told("closed"))
    other = network.server(target)
    await other.start("here")
    streams.open("here", handshake(3), again)
    await again.told("greeted")
    await streams.close()
    await other.close()
