"""Faults that Apache Kafka had since 4.0, tried here: docs/evidence/upstream_faults.md lists them.

Each test names the KAFKA-number in its docstring. The table also names tests elsewhere that hold a fault off.
"""
