"""Workers: real clients in processes of their own, each writing what it does as lines of `history.py`."""
