"""The built-in model: a seeded recipe anyone can rerun, and its weights."""
