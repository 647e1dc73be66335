"""`python -m bench contention`: transactions that want the same few accounts."""
