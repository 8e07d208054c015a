"""Browser fixtures for the shell's tests."""

from tests.browser_site import browser, browser_page, live_site

__all__ = ["browser", "browser_page", "live_site"]
