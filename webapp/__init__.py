"""The web application: Django, Channels and Celery."""
