"""Every page in both themes: no policy violation, no script error, no failed request (the fixture checks), nothing axe calls serious."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.test_a_run import wait_for_points

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]

REACHES_OUT = """() => {
  const scrolls = (one) => one && (getComputedStyle(one).overflowX !== 'visible' || scrolls(one.parentElement));
  return [...document.querySelectorAll('main *, header *')]
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 0.5 && !scrolls(one.parentElement))
    .slice(0, 6).map((one) => one.outerHTML.slice(0, 200));
}"""
WEIGHT_LIMIT_BYTES = 600_000  # a live page with fonts and charts, uncompressed


def serious(page: Any) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{item['id']}: {node['html'][:160]}"
        for item in found
        for node in item["nodes"]
        if item["impact"] in ("serious", "critical")
    ]


def review_addresses() -> list[str]:
    return ["/review/", "/review/flags/", "/review/kinds/", "/review/kinds/new/"]


def alert_addresses() -> list[str]:
    """Alerts, and a webhook with deliveries in each state."""
    from django.utils import timezone

    from webapp.alerts.models import Alert, Delivery, Webhook
    from webapp.runs.models import Run

    run = Run.objects.first()
    webhook, made = Webhook.objects.get_or_create(
        name="chat", defaults={"url": "https://chat.example.org/hook", "disabled_at": timezone.now()}
    )
    if made and run is not None:
        common = {"run": run, "attempt": 1, "at": timezone.now(), "message": "No unhinted episode was won."}
        alert = Alert.objects.create(kind="never_won", rollout=1, last_rollout=2, **common)
        Alert.objects.create(kind="run_completed", **common)
        Run.objects.filter(pk=run.pk).update(alerts=2)
        for state, one in (("waiting", alert), ("delivered", None), ("failed", None)):
            Delivery.objects.create(webhook=webhook, alert=one, state=state, tries=1, next_at=timezone.now(), body="{}")
    inside = f"/runs/{run.pk}/alerts/" if run is not None else "/runs/"
    return ["/alerts/", "/alerts/webhooks/", f"/alerts/webhooks/{webhook.pk}/", inside]


def account_addresses() -> list[str]:
    from webapp.accounts.models import User
    from webapp.accounts.services_tokens import create_token

    admin = User.objects.get(username="admin")
    if not admin.api_tokens.exists():
        create_token(actor=admin, name="nightly", scope="read", days=30)
    return ["/accounts/tokens/", "/accounts/profile/", "/api/docs/", *alert_addresses()]


def addresses(run: Any) -> list[str]:
    environment = run.environments.filter(superseded=False).order_by("-rollout", "slot").first()
    episode = run.episodes.filter(environment=environment, arm="hinted").first()
    other = run.episodes.filter(environment=environment, arm="unhinted").first()
    base = f"/runs/{run.pk}"
    candidate, document = run.candidates.first(), run.corpusdocuments.first()
    inside = (
        "", "charts/", "environments/", "candidates/?verdict=all", "memory/", "corpus/", "regret/", "episodes/", "checkpoints/",
        "config/", "log/", "system/", f"environments/{environment.key}/", f"episodes/{episode.pk}/", f"candidates/{candidate.key}/",
        f"corpus/{document.pk}/", f"pairs/{environment.key}/{episode.play}/",
        f"episodes/{episode.pk}/?find=distance", f"beside/?left={episode.pk}&right={other.pk}", *bench_pages(environment),
        *trying_pages(run, environment, other),
    )  # fmt: skip
    return [
        "/runs/",
        "/runs/?group=status&sort=-regret",
        f"/runs/compare/?run={run.pk}&settings=all",
        "/runs/queue/",
        "/runs/new/",
        "/keeping/imports/",
        "/keeping/disk/",
        "/keeping/retention/",
        *(f"{base}/{path}" for path in inside),
    ]


def bench_pages(environment: Any) -> list[str]:
    """Pages of plays, gates and variants, with something on each."""
    from webapp.environments.models import GateRun, PlaySession, Variant
    from webapp.pools.models import Pool

    fault = {
        "kind": "exception",
        "stage": "step",
        "message": "ZeroDivisionError",
        "line": 3,
        "traceback": "line 3",
        "stdout": "",
    }
    start = {"observation": "Guess \\boxed{N}", "stdout": "", "options": ["N"]}
    stages = [
        {
            "stage": "parse",
            "outcome": "failed",
            "message": "line 3",
            "line": 3,
            "elapsed_s": 0.1,
            "evidence": {},
            "measures": {},
        }
    ]
    variant, made = Variant.objects.get_or_create(
        environment=environment,
        number=1,
        defaults={"code": environment.code + "# more\n", "code_digest": "0", "note": "more"},
    )
    if made:
        GateRun.objects.create(
            environment=environment, variant=variant, state="done", accepted=False, failed_stage="parse", stages=stages
        )
        GateRun.objects.create(environment=environment, state="failed", failure="no sandbox here")
        common = {"environment": environment, "seed": 7, "max_turns": 8}
        PlaySession.objects.create(**common, replies=[start])
        PlaySession.objects.create(
            **common, state="over", status="env_error", replies=[start], actions=["1"], fault=fault
        )
    pool, _ = Pool.objects.get_or_create(name="tanks", state="building", total=2, tested=1)
    pool.items.get_or_create(environment=environment, accepted=False, failed_stage="parse", reason="line 3")
    plays = [f"play/{pk}/" for pk in PlaySession.objects.filter(environment=environment).values_list("pk", flat=True)]
    episode = environment.episodes.filter(seed=7).first() or environment.episodes.first()
    over, _ = PlaySession.objects.get_or_create(
        environment=environment, seed=episode.seed, state="over",
        defaults={"max_turns": 8, "replies": [start, {"observation": "Right.", "reward": 1.0}], "actions": ["1"],
                  "status": "won", "reward": 1.0},
    )  # fmt: skip
    plays.append(f"play/{over.pk}/beside/{episode.pk}/")
    base = f"environments/{environment.key}"
    lineage = [f"{base}/lineage/", f"{base}/diff/?to={environment.key}", "signals/", "rewards/", "ledger/"]
    pools = ["../../pools/", f"../../pools/{pool.pk}/"]
    return [*pools, *corpus_pages(), *lineage, f"{base}/play/", *plays, f"{base}/variants/new/", f"{base}/variants/1/"]


def trying_pages(run: Any, environment: Any, episode: Any) -> list[str]:
    """A checkpoint that can be tried, and sessions with something said and played: one that goes on, one that failed."""
    from datetime import timedelta
    from pathlib import Path
    from uuid import uuid4

    from django.utils import timezone

    from tests.trainer.starter_run import add_checkpoint
    from trainer.rundir import RunDirectory
    from webapp.accounts.models import User
    from webapp.runs.configuration import parse_config
    from webapp.trying.models import Exchange, Trial

    directory = RunDirectory(Path(run.directory))
    if not (directory.checkpoints / "000099").exists():
        add_checkpoint(directory, "000099", parse_config(run.config))
    admin = User.objects.get(username="admin")
    facts = {
        "reply_tokens": 959,
        "context_tokens": 1024,
        "engine": {"parameters": 7, "dtype": "float32", "device": "cpu"},
    }
    held = {"facts": facts, "lease": uuid4(), "leased_until": timezone.now() + timedelta(hours=1)}
    common = {"run": run, "by": admin, "checkpoint": "000099"}
    ready, made = Trial.objects.get_or_create(**common, state="ready", defaults=held)
    failed, _ = Trial.objects.get_or_create(**common, state="failed", defaults={"failure": "no <b>memory</b>"})
    said = {"text": "Hi <script>", "finish": "length", "reply_tokens": 3, "prompt_tokens": 9, "elapsed_s": 0.4}
    won = {"status": "won", "reward": 1.0, "total_tokens": 80, "elapsed_s": 0.9, "sandbox_tier": "namespaces"}
    turn = {
        "observation": "Pick\n\nHINT: the last",
        "reply": "\\boxed{1}",
        "action": "\\boxed{1}",
        "reward": 1.0,
        "reply_tokens": 4,
    }
    play = {"environment": environment, "seed": episode.seed, "arm": "hinted", "turns": [turn], "observation": "Right."}
    if made:
        Exchange.objects.create(
            trial=ready, kind="chat", conversation=1, text="Hello", system="Short.", state="done", answer=said
        )
        Exchange.objects.create(
            trial=ready, kind="chat", conversation=1, text="And?", state="refused", failure="no room"
        )
        for _ in range(2):
            Exchange.objects.create(trial=ready, kind="play", state="done", answer=won, **play)
    last = ready.exchanges.filter(kind="play").last()
    inside = [
        f"try/{ready.pk}/",
        f"try/{ready.pk}/?mode=play",
        f"try/{ready.pk}/{last.pk}/beside/{episode.pk}/",
        f"try/{failed.pk}/",
    ]
    return ["checkpoints/000099/try/", *inside]


def corpus_pages() -> list[str]:
    """A corpus that was found usable and one that was not, the list, and the form."""
    from webapp.corpora.models import Corpus

    shown = {
        "id": "t-1",
        "title": "Tiles",
        "words": 3,
        "text": "Tiles <b>cover</b> it",
        "is_cut": False,
        "metadata": {"k": "v"},
    }
    report = {
        "documents": 1, "words": 3, "longest_words": 3, "cut": 0, "skipped": {"blank lines": 1},
        "places": [["blank lines", "t.jsonl, line 2"]], "preview": [shown],
    }  # fmt: skip
    files = [{"name": "t.jsonl", "bytes": 20}]
    common = {"origin": "uploaded", "files": files, "file_count": 1, "bytes": 20, "licence": "MIT", "notes": "mine"}
    good, _ = Corpus.objects.get_or_create(
        name="tiles", defaults={**common, "source": "/srv/t.jsonl", "state": "ready", "documents": 1, "report": report}
    )
    bad, _ = Corpus.objects.get_or_create(
        name="broken",
        defaults={**common, "source": "/srv/b.jsonl", "state": "refused", "failure": "no usable document"},
    )
    return ["../../corpora/", "../../corpora/new/", *(f"../../corpora/{one.pk}/" for one in (good, bad))]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_clean_and_accessible(scheme: str, page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(4)
    page.emulate_media(color_scheme=scheme)
    found: dict[str, list[str]] = {}
    for address in [*addresses(run.run), *review_addresses(), *account_addresses()]:
        page.goto(address)
        page.wait_for_load_state("networkidle")
        if problems := serious(page):
            found[address] = problems
    assert found == {}


def test_case_21_hostile_text_runs_nothing_in_a_real_browser(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic(hostile=True)
    run.begin(2)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    for address in [*addresses(run.run), *review_addresses(), *account_addresses()]:
        page.goto(address)
        page.wait_for_load_state("networkidle")
    assert dialogs == []


@pytest.mark.parametrize("width", [390, 820, 1280])
def test_no_page_scrolls_sideways(width: int, page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(4)
    page.set_viewport_size({"width": width, "height": 900})
    wide = {}
    for address in [*addresses(run.run), *review_addresses(), *account_addresses()]:
        page.goto(address)
        if page.evaluate("() => document.documentElement.scrollWidth - innerWidth") > 0:
            wide[address] = page.evaluate(REACHES_OUT)
    assert wide == {}


def test_the_live_page_stays_light(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(2)
    page.goto(run.url)
    wait_for_points(page, 2)
    weight = page.evaluate(
        "() => performance.getEntriesByType('resource').reduce((sum, one) => sum + one.decodedBodySize, 0)"
    )
    assert 0 < weight < WEIGHT_LIMIT_BYTES


def test_colours_of_charts_follow_the_theme(page: Any, synthetic: Callable[..., Any]) -> None:
    run = synthetic()
    run.begin(3)
    page.emulate_media(color_scheme="light")
    page.goto(run.url)
    wait_for_points(page, 3)
    key = '[data-chart="win-rate"] [data-line="win_rate/unhinted"] .key'
    colour = f"() => getComputedStyle(document.querySelector('{key}')).color"
    light = page.evaluate(colour)
    page.keyboard.press("Alt+m")
    page.keyboard.press("Alt+m")
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    assert page.evaluate(colour) != light
