"""Corpora people may ground a run in: uploaded, or chosen from a folder of this machine."""
