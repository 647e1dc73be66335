"""Request handlers: their interface, context, response and errors, and the router that finds them.

| file | owns |
|---|---|
| `router` | the table of handlers: a request frame to its handler, and what ApiVersions lists |
| `fast_path` | the interface of requests that are served without being decoded |
| `request_context` | what a handler is given, and the forms of its response |
| `kafka_principal` | the user as whom a connection's requests are served |
| `read_barrier` | the wait for a confirmed leadership before a coordinator's request is served |
| `errors` | Kafka's errors as exceptions and per-record errors |
| `endpoint` | where clients reach a node |
| `time_slices` | sharing the event loop between long requests |
| `sliced_response` | responses that take more than one time slice to make |
| `duplicate_names` | limits of what a request may name more than once |
| `authorized_operations` | the "authorized operations" bit fields |
"""
