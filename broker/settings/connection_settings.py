"""The settings of clients' connections and requests, each with its reason: a part of `config.Settings`.

Kafka's names and, where a reason says so, its defaults. Source: Kafka's SocketServerConfigs and
ServerConfigs.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.settings.properties import INT32_MAX, KIB, MIB, Kind, setting


@dataclass(frozen=True)
class ConnectionSettings:
    """Limits of what one client, and all of them together, may use."""

    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        Kind.INT,
        104_857_600,
        "Largest request frame, as in Kafka; but for Produce, JoinGroup and SyncGroup requests end at 8 MiB.",
        minimum=1 * KIB,
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes", Kind.INT, -1, "SO_SNDBUF; -1 lets the system tune it.", minimum=-1
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes", Kind.INT, -1, "SO_RCVBUF; -1 lets the system tune it.", minimum=-1
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size", Kind.INT, 511, "Connections waiting to be accepted.", minimum=1
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        Kind.LONG,
        600_000,
        "A connection silent for so long is closed; -1 never.",
        minimum=-1,
    )
    max_connections: int = setting(
        "max.connections",
        Kind.INT,
        20_000,
        "Open connections; further ones are closed at once. About 7 KB each while idle.",
        minimum=0,
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", Kind.INT, INT32_MAX, "Open connections from one address.", minimum=0
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        Kind.LONG,
        256 * MIB,
        "Bytes of requests taken in and not yet answered, over all connections. Beyond it requests wait and "
        "their connections are not read from; those of up to 4 KiB, but for Produce, once it is a quarter "
        "more. Large requests of which a part has come count, and wait, all but one; -1: no limit.",
        minimum=-1,
    )
    lockstep_connection_max_in_flight: int = setting(
        "lockstep.connection.max.in.flight",
        Kind.INT,
        256,
        "Requests of one connection taken in and not yet answered; more stay unread. Clients send 5 to 100.",
        minimum=1,
    )
    lockstep_connection_write_buffer_bytes: int = setting(
        "lockstep.connection.write.buffer.bytes",
        Kind.INT,
        1 * MIB,
        "Unsent replies of one connection beyond which its next request waits: a client that does not read "
        "must not fill our memory.",
        minimum=1 * KIB,
    )
    lockstep_unsent_max_bytes: int = setting(
        "lockstep.unsent.max.bytes",
        Kind.LONG,
        256 * MIB,
        "Unsent replies of all connections with more than their write buffer, and what is being read from "
        "the disk for more. Beyond it a Fetch is answered with no more than that buffer: many clients that "
        "do not read must not fill our memory.",
        minimum=0,
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", Kind.INT, 57_671_680, "Largest Fetch answer, as in Kafka.", minimum=1 * KIB
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1_000,
        "Fetch sessions kept, as in Kafka; without one a client names all its partitions in each Fetch.",
        minimum=0,
    )
    lockstep_fetch_session_max_partitions: int = setting(
        "lockstep.fetch.session.max.partitions",
        Kind.INT,
        1_000_000,
        "Partitions remembered by all fetch sessions together: about 200 bytes each. One whose topic has a "
        "name of 200 characters or more counts as two.",
        minimum=0,
    )
    lockstep_lookup_max_bytes: int = setting(
        "lockstep.lookup.max.bytes",
        Kind.INT,
        64 * MIB,
        "Most a batch may expand to when a search by time looks into it: a decompression bomb stops here.",
        minimum=1 * MIB,
    )
    lockstep_shutdown_timeout_ms: int = setting(
        "lockstep.shutdown.timeout.ms",
        Kind.LONG,
        5_000,
        "How long a stop waits for requests in flight before it closes their connections.",
        minimum=0,
    )
