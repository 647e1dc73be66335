"""Seed 000's measurements (its figures 9 to 13), and ours of recoveries and dummies, on this machine.

| module | owns |
|---|---|
| `workload` | who gets what, the times that travel with it, what a target received (pure) |
| `points` | numbers of targets, sizes, rates, blocks; ratios, goals, the seed's figures (pure) |
| `writer` | the transaction manager: one log, a topic for each target, or a Kafka transaction over those |
| `consumers` | Kafka's targets: a consumer for each topic |
| `kafka_player` | the player of two-level Kafka: a Kafka transaction for each entry of the log |
| `watched` | a target that notes when something came |
| `targets` | the player's targets: lean ones, or SQLite |
| `player_runs` | a player between a log and those |
| `child_host` | a broker that players are put into |
| `delays` | blocks of both sides: one run of a workload |
| `backlogs` | blocks of what is in the log already; a target that is paused |
| `sessions` | the brokers, and which blocks each is for |
| `command` | `python -m bench player` |
| `tables` | the figures as numbers, with the seed's beside them |

Writer, player and targets are processes of this machine, and share its monotonic clock. All targets of a run
are in one process, on both sides: 20 of them would have 2 processors to share anyway. Both sides' writers,
and Kafka's consumers, are librdkafka through confluent-kafka, without linger.
"""
