"""The audit log: who did which administrative operation, from where, and whether it was allowed.

| module | |
|---|---|
| `audited_operations` | the fields of an administrative request and its response, resource by resource |
| `audit_log` | the file: one JSON object a line |

Decision 67 has the form of a line and what is left out.
"""
