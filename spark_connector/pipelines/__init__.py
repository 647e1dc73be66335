"""Data pipelines over Lockstep's topics, each a command: `python -m spark_connector.pipelines NAME …`.

| module | owns |
|---|---|
| `events` | the generated data set, appended to topics; `event_data` makes it |
| `archive` | a log into Parquet or Delta, by time, exactly once |
| `replay` | an archive into topics, byte for byte |
| `audit` | the contents of a player's targets, compared with the log |
| `routes`, `shard_stores`, `differences` | for `audit`: targets by record, their contents, the comparison |
| `state` | the newest value of each key of a compacted topic |
| `partition_appender` | writes rows so that row n is at offset n, through all crashes |
| `claims` | the claim of a writer on the topic that it fills |
| `topic_queries` | offsets of partitions, configurations of a topic |
| `log_frames` | a log and an archive as DataFrames: their columns |
| `__main__`, `spark_session` | the command line, the Spark session |
| `progress`, `failures` | progress lines and errors for the user |

docs/spark_pipelines.md has them all with examples.
"""
