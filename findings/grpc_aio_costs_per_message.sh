#!/usr/bin/env bash
# grpcio 1.85.0 (grpc.aio, Python 3.11): a message of a bidirectional stream costs both ends together three times or more what
# a length-prefixed frame over asyncio's own streams costs, and cost is per message, not per byte.
#
# Expected: some overhead of HTTP/2. Seen: 1,000 messages of 100 bytes one after the other take three times as long or more (5.5 seen) than 1,000 such frames
# answered over asyncio streams in the same process; 100 times as many bytes in a message cost less than twice as much. Whoever needs throughput
# puts many entries into one message.
. "$(dirname "$0")/lib.sh"

python_with grpcio==1.85.0
"$PYTHON" - >"$WORK/out.txt" <<'PROGRAM'
import asyncio, statistics, struct, time
import grpc

METHOD = "/f.F/Talk"


async def over_grpc(payload, count):
    async def talk(requests, context):
        async for each in requests:
            yield each

    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler("f.F", {"Talk": grpc.stream_stream_rpc_method_handler(talk)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream(METHOD)()
        for _ in range(100):
            await call.write(payload)
            await call.read()
        began = time.perf_counter()
        for _ in range(count):
            await call.write(payload)
            await call.read()
        took = time.perf_counter() - began
        await call.done_writing()
    await server.stop(0)
    return took / count


async def over_streams(payload, count):
    async def talk(reader, writer):
        try:
            while True:
                size = await reader.readexactly(4)
                writer.write(size + await reader.readexactly(struct.unpack(">i", size)[0]))
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    frame = struct.pack(">i", len(payload)) + payload
    began = 0.0
    for number in range(count + 100):
        if number == 100:
            began = time.perf_counter()
        writer.write(frame)
        await reader.readexactly(len(frame))
    took = time.perf_counter() - began
    writer.close()
    server.close()
    return took / count


async def main():
    small, large = b"x" * 100, b"x" * 10_000
    rounds = [
        (await over_grpc(small, 1000), await over_streams(small, 1000), await over_grpc(large, 1000)) for _ in range(5)
    ]
    grpc_small, plain, grpc_large = (statistics.median(each) for each in zip(*rounds))
    print(f"{grpc_small * 1e6:.0f} {plain * 1e6:.0f} {grpc_small / plain:.1f} {grpc_large / grpc_small:.2f}")


asyncio.run(main())
PROGRAM
read -r grpc_us plain_us ratio larger <"$WORK/out.txt"
echo "a round trip: grpc.aio $grpc_us us, streams $plain_us us, ratio $ratio; 100 times the bytes: $larger times"
expect "grpc.aio costs at least 3 times as much" "$(python3 -c "print($ratio >= 3)")" True
expect "100 times the bytes cost less than twice as much" "$(python3 -c "print($larger < 2)")" True
