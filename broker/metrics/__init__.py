"""The state of this node over HTTP: for Prometheus, for load balancers and for operators. Off by default.

`http` serves pages, over TLS by `tls_streams`, `pages` lists them, `exposition` reads the broker's state when
it is scraped, `health` reports why a node does not serve. Nothing here is imported unless
`lockstep.metrics.listener` is set.
"""
