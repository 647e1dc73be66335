"""The parts of the `player` workload: what the product's cores are played against.

| file | owns |
|---|---|
| `processes.py` | what may be killed and paused |
| `streams.py` | streams: in order, until they are cut; what was sent before that may come much later |
| `log.py` | what the log holds, read from the group's nodes; retention |
| `shell.py` | a player's process around the real core |
| `targets.py` | targets: a store that survives, and processes around the real rule |
| `faults.py` | which fault when |
| `rules.py` | what must hold |
| `recorder.py` | what the cores show after each step, for the model to judge |
"""
