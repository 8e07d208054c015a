"""Alerts: what a run does that somebody should look at, listed per run and sent to webhooks."""
