"""`python -m bench feed`: what bodies cost those who read a feed and do not look at them."""
