"""One group's data log: frames on the disk and in memory; knows neither Raft nor records.

`data_log.DataLog` is the face; it is `writer.LogWriter` (append, flush, roll), made into
`log_truncation.TruncatableLog` (truncation, an installation's switch), made into
`segment_maintenance.MaintainedLog` (retention, damage, cleaning, joining), made into the whole.

| concern | files |
|---|---|
| bytes, pure | `format` (frames, segment headers), `marker`, `index_file`, `segment_scan` |
| where batches lie, pure | `batch_index`, `run_table` |
| a frame's batches, pure | `batch_runs`; what became of them, `batch_flags` |
| small files | `state_file`, `checkpoint_file`, `origin_file` |
| writing | `writer`, `segment_pool` (files made ready), `background_maintenance` (index files, checkpoints) |
| reading by offset and time | `tail_cache`, `shared_reads`, `batch_reader`, `read_plan` |
| a read's checks | `batch_verification`, `verified_batches` (what passed them lately) |
| what is known to be damaged | `damage`; of a stopped log all that is, `damage_search` |
| reading by index and LSN | `recent_frames`, `frame_reader`; `lsn_lookup` from LSNs and offsets to frames |
| which segments there are | `segments`, `partition_spans`; `sealed_segment` (one, for retention) |
| which files are theirs | `segment_files`; `freed_segments` (which were freed behind one that stays) |
| | `wrongly_freed` (whole segments that a freed file names) |
| opening | `recovery` (the verdict; `missing_segment`: its words), `startup_cleanup` (after it) |
| | `recovery_result`; `lost_segments` (sealed segments whose file is lost) |
| opening without a state | `salvage` |
| whole segments | `segment_rewrite`, `frame_rewrite`, `installation`, `segment_compaction`, `joiner` |
| beside | `options`, `file_system`, `inspect` (a stopped broker's log) |
"""
