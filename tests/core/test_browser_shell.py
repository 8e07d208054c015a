"""The shell in a real Chromium: one click signs in, themes, keys, copying, clocks, accessibility, and no policy violation."""

from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.core.test_numbers import DURATION_CASES, INTERVAL_CASES, NUM_CASES, RELATIVE_CASES

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


SIGNED_IN_PAGES = (
    "/design/",
    "/accounts/profile/",
    "/accounts/users/",
    "/accounts/users/invite/",
    "/accounts/audit/",
    "/about/licences/",
)


def sign_in(page: Any) -> None:
    """As the first admin, by the one-time link and its one click; ends on the profile page."""
    from webapp.accounts.services import demo_link

    _, address = demo_link()
    page.goto(urlsplit(address).path)
    page.get_by_role("button", name="Open Spadework").click()
    page.wait_for_load_state()
    page.goto("/accounts/profile/")


@pytest.fixture
def signed_in(browser_page: Any) -> Any:
    """The page with the first admin signed in."""
    sign_in(browser_page)
    return browser_page


def violations_at(page: Any, address: str) -> list[str]:
    page.goto(address)
    found = Axe().run(page).response["violations"]
    return [
        f"{item['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for item in found
        for node in item["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_accessibility_violations_in_either_theme(browser_page: Any, scheme: str) -> None:
    browser_page.emulate_media(color_scheme=scheme)
    browser_page.expected_statuses = {410}
    found = {address: violations_at(browser_page, address) for address in ("/accounts/login/", "/accounts/link/used")}
    sign_in(browser_page)
    found |= {address: violations_at(browser_page, address) for address in SIGNED_IN_PAGES}
    assert {address: items for address, items in found.items() if items} == {}


def test_the_theme_button_cycles_and_the_choice_survives_a_reload(signed_in: Any) -> None:
    signed_in.emulate_media(color_scheme="light")
    signed_in.goto("/accounts/profile/")
    background = "() => getComputedStyle(document.body).backgroundColor"
    light = signed_in.evaluate(background)
    with signed_in.expect_response("**/accounts/theme/"):
        signed_in.get_by_role("button", name="Theme: system. Change").click()
    with signed_in.expect_response("**/accounts/theme/"):
        signed_in.keyboard.press("Alt+m")
    assert signed_in.evaluate("() => document.documentElement.dataset.theme") == "dark"
    dark = signed_in.evaluate(background)
    assert dark != light
    signed_in.reload()
    assert signed_in.evaluate(background) == dark
    from webapp.accounts.models import User

    assert User.objects.get().theme == "dark"


def test_the_question_mark_opens_a_sheet_of_this_pages_keys_and_n_follows_one(signed_in: Any) -> None:
    signed_in.goto("/accounts/users/")
    signed_in.keyboard.press("?")
    sheet = signed_in.get_by_role("dialog", name="Keys")
    assert "invite" in sheet.inner_text()
    signed_in.keyboard.press("Escape")
    assert not sheet.is_visible()
    signed_in.keyboard.press("n")
    signed_in.wait_for_url("**/accounts/users/invite/")


def test_keys_are_off_while_typing(signed_in: Any) -> None:
    signed_in.goto("/accounts/users/invite/")
    signed_in.get_by_label("Name").press_sequentially("n?n")
    assert signed_in.get_by_label("Name").input_value() == "n?n"
    assert not signed_in.get_by_role("dialog", name="Keys").is_visible()


def test_an_invitation_link_is_made_copied_and_used_by_another_person(
    signed_in: Any, browser: Any, live_site: str
) -> None:
    signed_in.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=live_site)
    signed_in.goto("/accounts/users/invite/")
    signed_in.get_by_label("Name").fill("rita")
    signed_in.get_by_label("reviewer:").check()
    signed_in.get_by_role("button", name="Make invitation link").click()
    signed_in.get_by_role("button", name="Copy link").click()
    signed_in.wait_for_selector(".copied")
    # The link names the server's public address, which for this server is the one we are on.
    address = signed_in.evaluate("() => navigator.clipboard.readText()")
    assert address.startswith(f"{live_site}/accounts/link/")
    other = browser.new_context().new_page()
    other.goto(address)
    other.get_by_label("New password").fill("a long enough passphrase")
    other.get_by_label("The same again").fill("a long enough passphrase")
    other.get_by_role("button", name="Set password and sign in").click()
    other.goto(f"{live_site}/accounts/profile/")
    assert other.get_by_role("heading", name="rita").is_visible()
    other.context.close()


def test_the_account_menu_closes_on_escape_and_signs_out(signed_in: Any) -> None:
    signed_in.goto("/accounts/profile/")
    summary = signed_in.locator("summary[aria-label='Your account']")
    summary.click()
    assert signed_in.get_by_role("button", name="Sign out").is_visible()
    signed_in.keyboard.press("Escape")
    assert not signed_in.get_by_role("button", name="Sign out").is_visible()
    summary.click()
    signed_in.get_by_role("button", name="Sign out").click()
    signed_in.wait_for_url("**/accounts/login/")


def test_times_follow_the_servers_clock_and_their_tooltip_names_both_zones(signed_in: Any) -> None:
    signed_in.clock.install(time="2031-01-01T00:00:00Z")  # a browser whose clock is years ahead
    signed_in.goto("/design/")
    newest = signed_in.locator("time[data-relative]").filter(has_text="4 min ago").first
    signed_in.clock.run_for(61_000)
    assert signed_in.locator("time[data-relative]").filter(has_text="5 min ago").count() >= 1
    title = signed_in.locator("time[data-relative]").first.get_attribute("title")
    assert "UTC" in title
    assert "E" in title.split("·")[0].split()[-1]  # EST or EDT
    assert newest is not None


def test_hiding_a_column_holds_after_a_reload(signed_in: Any) -> None:
    signed_in.goto("/design/")
    signed_in.get_by_text("Columns", exact=True).click()
    signed_in.get_by_label("reward D").uncheck()
    assert signed_in.get_by_role("columnheader", name="reward D").count() == 0
    signed_in.reload()
    assert signed_in.get_by_role("columnheader", name="reward D").count() == 0
    assert signed_in.get_by_role("columnheader", name="tok/s").count() == 1


def test_live_numbers_are_written_as_the_servers_are(signed_in: Any) -> None:
    signed_in.goto("/design/")
    assert signed_in.evaluate("(cases) => cases.map(([v]) => Spadework.format.num(v))", NUM_CASES) == [
        text for _, text in NUM_CASES
    ]
    assert signed_in.evaluate("(cases) => cases.map(([v, h]) => Spadework.format.interval(v, h))", INTERVAL_CASES) == [
        text for *_, text in INTERVAL_CASES
    ]
    assert signed_in.evaluate("(cases) => cases.map(([v]) => Spadework.format.duration(v))", DURATION_CASES) == [
        text for _, text in DURATION_CASES
    ]
    now_ms = 1_796_000_000_000
    assert signed_in.evaluate(
        "([cases, now]) => cases.map(([age]) => Spadework.format.relative(now - age * 1000, now))",
        [RELATIVE_CASES, now_ms],
    ) == [text for _, text in RELATIVE_CASES]


def test_hostile_text_on_the_design_page_is_only_text(signed_in: Any) -> None:
    signed_in.goto("/design/")
    assert signed_in.locator("img").count() == 0
    assert signed_in.locator("[hx-get]").count() == 0
    assert "onerror=alert(1)" in signed_in.locator("#u2").inner_text()


def test_a_token_is_a_colour_that_a_canvas_understands_and_differs_by_theme(signed_in: Any) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        signed_in.emulate_media(color_scheme=scheme)
        signed_in.goto("/design/")
        colours[scheme] = signed_in.evaluate("() => Spadework.color('--arm-hinted')")
        assert colours[scheme].startswith("rgb(")
    assert colours["light"] != colours["dark"]


def test_the_page_weighs_less_than_the_budget(signed_in: Any) -> None:
    signed_in.goto("/design/")
    compressed = signed_in.evaluate(
        "() => performance.getEntriesByType('resource').reduce((sum, entry) => sum + entry.encodedBodySize, 0)"
    )
    assert 50_000 < compressed < 180_000  # two typefaces are about 90 KB of it
