"""Spark over Lockstep and over Apache Kafka: reading both, writing ours; `python -m bench spark`.

| module | |
|---|---|
| `command` | the words and the alternation |
| `topic_fill` | the topics to be read |
| `driver` | the one Spark session that does all of it, in Spark's own environment |
| `figures` | from seconds to ratios and their table, and the goals. Pure |
"""
