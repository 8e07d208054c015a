"""The REST API: what its views share, its schema and its documentation. Each app's own views are in its ``api.py``."""
