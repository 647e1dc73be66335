"""Reads of partitions: sessions, long polls, committed reads, reads from a follower.

| file | owns |
|---|---|
| `fetch_requests` | what all requests share, and a decoded one from its reads to its response |
| `fetch_fast_path` | requests like the last one of their connection, served without being decoded |
| `plain_read` | the reads and the response of such a request |
| `fetch_session` | incremental fetch sessions (KIP-227) |
| `partition_check` | the errors and redirects of a partition, before it is read |
| `partition_reads` | how much of each partition is read, from memory or the disk |
| `fetch_purgatory` | fetches that wait for more bytes |
| `aborted_transactions` | the aborted transactions of a read, for `read_committed` |
| `replica_selector` | a replica in the client's rack (KIP-392) |
| `follower_fetch` | what a follower may serve of its replica |

`api/` has the handlers.
"""
