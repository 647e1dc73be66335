"""`python -m bench profile`: where the broker's time goes.

| module | |
|---|---|
| `split` | a group commit's time by stage, and flame graphs; the kind for the runner |
| `stages` | samples, split into stages. Pure |
| `system_calls` | what the kernel does meanwhile |
"""
