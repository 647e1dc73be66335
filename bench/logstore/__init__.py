"""Seed 001's experiments (its figure 7), with log groups in processes of their own and a client in another.

| file | owns |
|---|---|
| `node` | one replica: a `LogGroup` behind the peer transport, and the stream of one client |
| `naive` | the store it is compared with: the payload in the Raft log, then again in a second log |
| `client` | the open loop: requests at a fixed rate, independent of responses |
| `replicas` | starting replicas, finding their leader, what they wrote |
| `experiments` | the figures: what varies, what is measured; the kind for the runner |
| `tables` | the figures as numbers |

One request is one atomic batch; nothing is merged by the client. Each stream is capped at what the seed's
network carried (`SO_MAX_PACING_RATE`: the kernel paces, no thread sleeps for it).
"""
