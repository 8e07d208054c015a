"""People of each role, as in tests/pages."""

from tests.pages.conftest import as_role, ingested, operator, viewer

__all__ = ["as_role", "ingested", "operator", "viewer"]
