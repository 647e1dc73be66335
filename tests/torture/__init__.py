"""A cluster of real processes in network namespaces, real clients, faults, and the checker that judges them.

`python -m tests.torture` runs it; the tests beside it plant every anomaly in the checker's histories.
"""
