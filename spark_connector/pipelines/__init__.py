"""Data pipelines over Lockstep's topics, each a command: `python -m spark_connector.pipelines NAME …`.

| module | owns |
|---|---|
| `events` | the generated data set, appended to topics; `event_data` makes it |
| `archive` | a log into Parquet or Delta, by time, exactly once |
| `replay` | an archive into topics, byte for byte |
| `audit` | what a player's targets hold, compared with the log |
| `routes`, `shard_stores`, `differences` | for `audit`: whose is which record, what targets hold, comparing |
| `state` | the newest value of each key of a compacted topic |
| `appending` | how rows are written so that row n is at offset n, whoever dies |
| `claims` | what a writer remembers of the topic that it fills |
| `asking` | how far partitions reach, how a topic is configured |
| `log_frames` | a log and an archive as DataFrames: their columns |
| `__main__`, `submitting` | the command line, the Spark session |
| `progress`, `failures` | what a user is told |

docs/spark_pipelines.md has them all with examples.
"""
