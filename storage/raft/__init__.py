"""The Raft state machine: no clock, no randomness, no input or output.

It knows entries as (index, term) pairs and never sees a payload.

| concern | modules |
|---|---|
| the state and its inputs | `raft`, with numbers from `settings` |
| what comes out | `ready` (what is to be done), `messages` (what is said to others) |
| who leads | `term_rules`, `election`, `roles`, legal changes in `transitions`, `transfer`, `lease` |
| the leader's entries | `sending`, `spares` (who is sent them later), `replication` (what is committed) |
| the other members, to a leader | `progress` |
| a follower's | `accepting`, `install` (checkpoints for who is far behind) |
| who the members are | `configuration`, `membership`, majorities in `quorum` |
| what is remembered | `term_index` (of the log), `volatile` (of one term) |

Source: Ongaro and Ousterhout, "In search of an understandable consensus algorithm"; seed 001 for the shared
log.
"""
