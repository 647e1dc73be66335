"""Streams between a player and its targets: the transport of messages, without their meaning.

| module | owns |
|---|---|
| `interface` | the protocols of a transport, on the player's side and on a target's |
| `limits` | every bound, with its reason |
| `wire` | messages to protobuf bytes and back |
| `grpc_streams`, `grpc_server` | gRPC, on the player's side and on a target's |
| `tls_files` | the keys of TLS over gRPC |
| `frames` | messages to frames of our own and back |
| `raw_streams`, `raw_server` | those frames over a plain socket, on either side |
| `factory` | the transports by their names in configurations |
| `addresses` | `host:port` and `unix:/path` |
| `sockets` | a socket for every address of a host, all at one port, or none |
"""
