"""Appends of record batches: validation, deduplication, and the append to a partition's log.

| file | owns |
|---|---|
| `appender` | the append of one batch, after every check |
| `append_result` | the results of an append, and the protocols of append paths |
| `batch_validation` | checks of a batch's header and checksum |
| `record_keys`, `record_sizes`, `batch_times`, `recompression` | checks and changes of a batch's records |
| `producer_state` | the last batches of each producer, for idempotence |
| `duplicate_append_time` | the append time of a batch that was sent again |
| `marker_batches` | the control batches that end transactions in one log group; it appends none |
| `rejected_batches` | the partition and the producer of a batch that Produce rejected |
| `delayed_produce` | the appends of one Produce, and the response that waits for their commits |
| `produce_fast_path` | requests like the last one of their connection, appended without being decoded |
| `compiled_fast_path`, `fast_path.c` | the same with the optional C extension |
| `plain_topic` | the topics and partitions that take such requests, and the responses |
| `sliced_produce` | the rest of a Produce whose batches take more than one time slice of the loop |

`api/` has the handlers.
"""
