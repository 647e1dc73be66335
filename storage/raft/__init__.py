"""The Raft state machine: no clock, no randomness, no input or output.

It knows entries as (index, term) pairs and never sees a payload.

| concern | modules |
|---|---|
| the state and its inputs | `raft`, with numbers from `settings` |
| outputs | `ready` (work for the shell), `messages` (for the other members) |
| elections | `term_checks`, `election`, `role_changes`, legal changes in `transitions`, `transfer`, `lease` |
| the leader | `replication_send`, `deferred_voters` (sent later), `replication` (commits), `progress` |
| the follower | `follower`, `install` (snapshots for a member far behind) |
| the members | `configuration`, `membership`, majorities in `quorum` |
| data | `term_index` (of the log), `state` (of one term) |

Source: Ongaro and Ousterhout, "In search of an understandable consensus algorithm"; the LogStore paper for
the shared log.
"""
