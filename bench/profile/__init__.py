"""`python -m bench profile`: where the broker's time goes.

| module | |
|---|---|
| `command` | the command line; functions, sampled or counted |
| `split` | `--split`: a group commit's time by stage, and flame graphs |
| `stages` | samples, split into stages. Pure |
| `system_calls` | what the kernel does meanwhile |
"""
