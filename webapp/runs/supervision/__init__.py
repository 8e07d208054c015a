"""Keeping a trainer process, its run's row and its event log in step: lease, process, commands, outcome, sweeper."""
