"""The people, runs and browsers of the page and browser tests."""

from tests.browser.conftest import browser, browser_page, live_site, page, patience, synthetic
from tests.environments.conftest import bench, reviewer
from tests.pages.conftest import as_role, ingested, operator, run, viewer
from tests.pools.conftest import built, home, programs

__all__ = [
    "as_role", "bench", "browser", "browser_page", "built", "home", "ingested", "live_site", "operator", "page", "patience", "programs",
    "reviewer", "run", "synthetic", "viewer",
]  # fmt: skip
