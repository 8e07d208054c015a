"""Layers a process puts on itself before it may see generated source. Standard library and ctypes only."""
