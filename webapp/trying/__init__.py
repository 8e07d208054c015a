"""Trying a checkpoint by hand: chat with it and watch it play, in a process of a worker that may load weights."""
