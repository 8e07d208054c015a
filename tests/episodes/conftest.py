"""The people and runs of the page tests."""

from tests.pages.conftest import as_role, ingested, operator, run, viewer

__all__ = ["as_role", "ingested", "operator", "run", "viewer"]
