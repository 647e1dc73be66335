"""The transport between nodes: Raft's messages of all groups, and opaque words between brokers.

Two connections lead from each node to each other, both dialed by the sender: `control` for what is
small and must not wait (votes, heartbeats, responses), `bulk` for frames. Nothing here knows what a term is
or whether a message is true; messages may be lost, late or overtaken, never changed or taken apart. Of the
rest of storage it uses the core's messages and `Configuration`, a snapshot's chunks (`snapshot_chunk`), which
node a member id is of (`group_options`), and `rate_limited_log`.

| file | owns |
|---|---|
| `network` | what the broker uses: known peers; messages, notifications and requests to them |
| `outgoing` | one connection to a peer, dialed again for ever; what the kernel does not take yet |
| `incoming` | connections of peers to us, from the handshake on |
| `envelope` | messages to frames and back |
| `tls_socket`, `tls_transport` | TLS below an outgoing and an incoming connection |
| `peer_identity`, `peer_tls` | the node that a certificate is of; the reasons of failed handshakes |
| `limits` | every bound, with its reason |
"""
