"""`python -m bench compaction`: what compaction gives back, and what it costs. All of it is in `command`."""
