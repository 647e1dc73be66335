"""`python -m bench locks`: what a lock costs, beside a record without one. All of it is in `command`."""
