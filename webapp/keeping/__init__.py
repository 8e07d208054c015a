"""Keeping things: run directories brought in from elsewhere, disk, how long what is kept."""
