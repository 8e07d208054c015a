"""Services and processes of one machine: embedded PostgreSQL and Valkey, web server, workers, and who stops whom.

Nothing here imports Django: the supervisor has to run, and to say what is wrong, when the application cannot start.
"""
