"""Runs: their states, their event log in Postgres, the supervisor of the trainer and the live path."""
