"""One side of a measurement: a broker, or three, started, warmed up, given work, and ended without a trace.

| module | |
|---|---|
| `session` | a session's life, its warm-up, and what is recorded around each block of work |
| `setup` | how a side's brokers are started |
| `cluster` | a session of three nodes |
| `secured` | a session of a broker with a plaintext and a SASL_SSL listener |
| `topics` | topics made, led and counted |
| `jobs` | the load generator's processes; what ends a block, what ends a session |
| `groups` | the blocks of consumer groups |
| `children` | processes that respond to lines of JSON |
| `blocks` | the blocks of work that several comparisons share |
| `commits` | group commits in a stopped node's logs |
"""
