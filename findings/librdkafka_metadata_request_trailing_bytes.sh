#!/usr/bin/env bash
# confluent-kafka 2.16.1 (librdkafka 2.16.0): its Metadata request for all topics, version 9 and newer, ends in bytes that are no part of it.
#
# Expected: a frame that the schema of the request consumes whole. Seen: the array of topics is null, as "all topics" is written, the three
# flags and the tagged fields follow, and then three bytes are left over. Apache Kafka ignores what follows a request; a server that insists
# on whole frames refuses list_topics() of every application on librdkafka.
. "$(dirname "$0")/lib.sh"

python_with confluent-kafka==2.16.1
"$PYTHON" - >"$WORK/out.txt" <<'PROGRAM'
import socket, struct, threading
from confluent_kafka.admin import AdminClient

listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
left = []


def uvarint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def serve(connection):
    read = connection.makefile("rb")
    while len(size := read.read(4)) == 4:
        frame = read.read(struct.unpack(">i", size)[0])
        key, version, correlation, client = struct.unpack_from(">hhih", frame)
        at = 10 + max(client, 0) + 1  # the flexible header ends in an empty set of tagged fields
        if key == 18:
            body = struct.pack(">h", 0) + b"\x03" + struct.pack(">hhhb", 18, 0, 3, 0)
            body += struct.pack(">hhhb", 3, 0, 12, 0) + struct.pack(">i", 0) + b"\0"
            answer = struct.pack(">i", correlation) + body
        else:
            topics, at = uvarint(frame, at)
            for _ in range(max(topics - 1, 0)):
                at += 16
                length, at = uvarint(frame, at)
                at += max(length - 1, 0)
                _, at = uvarint(frame, at)
            at += 2 if version >= 11 else 3  # the flags
            tags, at = uvarint(frame, at)
            assert tags == 0
            if topics == 0:
                left.append((version, len(frame) - at))
            brokers = b"\x02" + struct.pack(">i", 1) + b"\x0a127.0.0.1" + struct.pack(">i", port) + b"\0\0"
            answer = struct.pack(">ib", correlation, 0) + struct.pack(">i", 0) + brokers + b"\x02c"
            answer += struct.pack(">i", 1) + b"\x01\0"
        connection.sendall(struct.pack(">i", len(answer)) + answer)


def accept():
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


threading.Thread(target=accept, daemon=True).start()
admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
admin.list_topics(timeout=10)
print(*left[0])
PROGRAM
read -r version bytes <"$WORK/out.txt"
expect "version of Metadata" "$version" 12
expect "bytes behind the request" "$bytes" 3
