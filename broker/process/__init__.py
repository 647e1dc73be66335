"""The parts of the process that any room may use.

| file | owns |
|---|---|
| `process_output` | standard output and standard error, which never block the event loop |
| `heap` | the C library's heap |
| `log_text` | clients' texts, made safe for the log |
| `wall_clock` | the time of day |
| `regular_file` | files that settings name, which are regular ones |
"""
