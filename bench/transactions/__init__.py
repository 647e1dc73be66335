"""`python -m bench transactions` and `atomic`: several partitions written together, on three nodes.

| module | |
|---|---|
| `command` | transactions of a real client, Lockstep's against Kafka's |
| `atomic` | Lockstep's atomic appends against Kafka's transactions |
| `section` | what docs/benchmarks/ says of both |
"""
