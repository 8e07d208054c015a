"""`python -m sandbox bench`: speed of the sandbox against the same environments run in process, in one run."""
