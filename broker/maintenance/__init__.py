"""Background tasks of the logs: retention, compaction, corruption, full disks.

| file | owns |
|---|---|
| `retention` | deletion of records by time and size |
| `compaction` | which logs are compacted, and when |
| `segment_roll` | sealing segments by time |
| `scrub` | reading sealed segments to find corruption |
| `damage` | the damaged offset ranges of this node |
| `full_disks` | log lines and freed space while a disk is full |
| `future_records` | records whose timestamps stop retention and compaction |
"""
