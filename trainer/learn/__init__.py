"""Learning: advantages, the GRPO loss, batches and the learner engines."""
