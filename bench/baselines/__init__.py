"""Brokers that Lockstep is measured beside, other than Apache Kafka as shipped.

| module | |
|---|---|
| `tuned` | Apache Kafka tuned as its documentation says, each setting with its reason |
| `memory` | two that keep everything in memory, as bounds: tansu (Rust) and kfake (Go) |
| `targets` | all that can be named in a workload, by name: how each is started, and what it promises |
| `command` | `python -m bench baselines`: what is there, and how to get what is not |
"""
