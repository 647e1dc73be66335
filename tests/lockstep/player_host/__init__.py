"""Tests that mirror lockstep/player_host/."""
