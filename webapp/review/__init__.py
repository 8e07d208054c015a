"""Judging what a run made: flags with consequences, review queues, agreement between reviewers."""
