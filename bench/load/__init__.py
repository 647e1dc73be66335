"""`python -m bench.load JOB`: the load generator, in a process of its own; every broker gets the same bytes.

| module | |
|---|---|
| `__main__` | the command: one job as JSON, its result as JSON |
| `wire` | the requests of timed loops, written out by hand and stamped, and what their responses must be |
| `connection` | sockets, and the whole responses that come over them |
| `tls_socket` | the same sockets with TLS and a login |
| `latency` | quantiles of latencies |
| `closed_loop` | producers with one request in flight: records, or commits of offsets |
| `pipelined_loop` | producers with several in flight, as fast as they can or at a rate |
| `backlog` | a topic filled, and read from a position to its end, by one reader or several |
| `fan_out` | a writer, and groups that read it meanwhile |
| `first_ack` | the moment of the first acknowledgement: after a start, after a leader's loss |
| `idle` | connections that send nothing |
| `members` | members of consumer groups: rebalances, and many groups held |
| `clients` | real clients: librdkafka's producers and transactions |
| `appends` | atomic appends, with Lockstep's own client or bare |
| `feed` | a topic filled with transactions, and read as a feed does |
| `contention` | a client of transactions on few accounts, a process of its own |
| `random_read` | single fetches at random places of a cold log |

The job "open_loop" is beside what measures it (`bench/logstore`).
"""
