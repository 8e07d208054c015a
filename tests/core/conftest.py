"""Fixtures of the shell's tests: browser, and people with a role."""

from tests.accounts.conftest import as_role, person
from tests.browser_site import browser, browser_page, live_site

__all__ = ["as_role", "browser", "browser_page", "live_site", "person"]
