"""Clients' connections: frames in, responses out, and how much a client may have the broker hold.

| file | owns |
|---|---|
| `listeners` | listening sockets, and how many clients each may have |
| `listener_conflicts` | this node's listeners by setting: two that want one address |
| `connection` | one client: its requests and the order of their responses |
| `tls_connection` | the TLS of one client, between its socket and its connection |
| `sasl_connection` | one client that logs in before its requests |
| `listener_security` | TLS and SASL of each listener, and new certificates |
| `handshake_errors` | the reasons of failed TLS handshakes in words |
| `connection_registry` | all clients: limits, joint writes, idle connections |
| `throttles` | clients over their quotas: throttle times, and muted connections |
| `channel_mute` | one client that is throttled: not read, and closed with its client |
| `disconnect_detection` | which clients have closed a connection that is not read |
| `response_encoder` | responses to bytes |
| `unsent_bytes` | bytes of responses that wait for their clients |
| `receive_memory` | memory of large requests that have not arrived in full |

Does not: know what a request means (`broker/requests/router.py`).
"""
