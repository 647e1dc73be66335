"""The settings of clients' connections and requests, each with its reason: a part of `config.Settings`.

Kafka's names and, where a setting's reason states it, its defaults. Source: Kafka's SocketServerConfigs and
ServerConfigs.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.broker.settings.properties import INT32_MAX, KIB, MIB, Kind, setting


@dataclass(frozen=True)
class ConnectionSettings:
    """Limits of what one client, and all of them together, may use."""

    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        Kind.INT,
        104_857_600,
        "Largest request, as in Kafka; requests other than Produce, JoinGroup and SyncGroup end at 8 MiB.",
        minimum=1 * KIB,
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        Kind.INT,
        -1,
        "Size of a socket's send buffer (SO_SNDBUF); -1: the system's.",
        minimum=-1,
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        Kind.INT,
        -1,
        "Size of a socket's receive buffer (SO_RCVBUF); -1: the system's.",
        minimum=-1,
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size",
        Kind.INT,
        511,
        "Limit of connections that wait to be accepted.",
        minimum=1,
        unit="connections",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        Kind.LONG,
        600_000,
        "A connection without requests for this time is closed; -1: never.",
        minimum=-1,
    )
    max_connections: int = setting(
        "max.connections",
        Kind.INT,
        20_000,
        "Limit of open connections; the broker closes further ones at once. An idle one takes about 7 KB.",
        minimum=0,
        unit="connections",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        Kind.INT,
        INT32_MAX,
        "Limit of open connections from one address.",
        minimum=0,
        unit="connections",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        Kind.LONG,
        256 * MIB,
        "Limit of the unanswered requests of all connections. Beyond it the broker does not read from "
        "connections with a large or a Produce request; requests of up to 4 KiB wait once it is "
        "exceeded by a quarter. Parts of large requests count, and all but one of these wait; -1: no "
        "limit.",
        minimum=-1,
    )
    lockstep_connection_max_in_flight: int = setting(
        "lockstep.connection.max.in.flight",
        Kind.INT,
        256,
        "Limit of one connection's unanswered requests; the broker does not read more. Clients send 5 "
        "to 100.",
        minimum=1,
        unit="requests",
    )
    lockstep_connection_write_buffer_bytes: int = setting(
        "lockstep.connection.write.buffer.bytes",
        Kind.INT,
        1 * MIB,
        "Unsent responses of one connection at which its next request waits: a client that does not "
        "read must not fill the memory.",
        minimum=1 * KIB,
    )
    lockstep_produce_fast_path: bool = setting(
        "lockstep.produce.fast.path",
        Kind.BOOLEAN,
        True,
        "A Produce request like the last one of its connection is appended without being decoded. "
        "false: each is decoded, to compare or to find a fault; responses and log are the same.",
    )
    lockstep_fetch_fast_path: bool = setting(
        "lockstep.fetch.fast.path",
        Kind.BOOLEAN,
        True,
        "A Fetch request like the last one of its connection is served without being decoded. "
        "false: each is decoded, to compare or to find a fault; responses are the same.",
    )
    lockstep_unsent_max_bytes: int = setting(
        "lockstep.unsent.max.bytes",
        Kind.LONG,
        256 * MIB,
        "Unsent responses of all connections beyond their write buffers, and the reads from disk for "
        "more. Beyond it a Fetch response is no larger than that buffer: many clients that do not "
        "read must not fill the memory.",
        minimum=0,
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", Kind.INT, 57_671_680, "Largest Fetch response, as in Kafka.", minimum=1 * KIB
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1_000,
        "Limit of fetch sessions, as in Kafka; without one a client names all its partitions in each Fetch.",
        minimum=0,
        unit="sessions",
    )
    lockstep_fetch_session_max_partitions: int = setting(
        "lockstep.fetch.session.max.partitions",
        Kind.INT,
        1_000_000,
        "Limit of the partitions in all fetch sessions, about 200 bytes each. A partition counts as "
        "two if its topic's name has 200 characters or more.",
        minimum=0,
        unit="partitions",
    )
    lockstep_lookup_max_bytes: int = setting(
        "lockstep.lookup.max.bytes",
        Kind.INT,
        64 * MIB,
        "Largest decompressed size of a batch that a search by time opens: a decompression bomb stops here.",
        minimum=1 * MIB,
    )
    lockstep_shutdown_timeout_ms: int = setting(
        "lockstep.shutdown.timeout.ms",
        Kind.LONG,
        5_000,
        "How long a stop waits for requests in flight before it closes connections.",
        minimum=0,
    )
