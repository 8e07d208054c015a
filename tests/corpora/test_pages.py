"""The list, the page, the start form and the run's pages; deleting while runs name a corpus."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.corpora.conftest import files_below
from tests.pages.test_start_form import posted


def use(run: Any, corpus: Any) -> None:
    run.config = {**run.config, "corpus": {**run.config["corpus"], "source": corpus.source, "enabled": True}}
    run.save()


def test_the_list_shows_what_people_ask_of_a_corpus(checked: Callable[..., Any], run: Any, viewer: Client) -> None:
    corpus = checked(name="my tiles", licence="MIT")
    use(run, corpus)
    html = viewer.get("/corpora/").content.decode()
    row = next(part for part in html.split("<tr>") if "my tiles" in part)
    for text in ("ready", '<td class="n">3</td>', "jsonl", "MIT", "operator-person", '<td class="n">1</td>'):
        assert text in row
    assert "Demo corpus" in html
    assert "Add corpus" not in html


def test_the_demo_corpus_is_checked_like_any_other(operator: Client) -> None:
    from webapp.corpora.checking import check
    from webapp.corpora.models import Corpus

    demo = Corpus.objects.get(source="builtin:demo")
    check(corpus_id=demo.pk)
    demo.refresh_from_db()
    assert (demo.state, demo.documents, demo.formats) == ("ready", 180, ["jsonl"])
    operator.post(f"/corpora/{demo.pk}/act/delete/")
    demo.refresh_from_db()
    assert demo.deleted_at is None


def test_the_start_form_offers_ready_corpora_by_name(checked: Callable[..., Any], operator: Client) -> None:
    corpus = checked(name="my tiles")
    html = operator.get("/runs/new/?preset=tiny").content.decode()
    assert f'<option value="{corpus.source}">my tiles, 3 documents</option>' in html
    prefilled = operator.get(f"/runs/new/?preset=tiny&corpus.source={corpus.source}").content.decode()
    assert f'<option value="{corpus.source}" selected>' in prefilled
    assert f'name="corpus.source" value="{corpus.source}"' in prefilled


def test_the_choice_of_the_list_counts_where_nothing_was_typed(checked: Callable[..., Any], operator: Client) -> None:
    from webapp.runs.models import Run

    corpus = checked()
    operator.post("/runs/new/", {**posted("tiny"), "corpus.source:chosen": corpus.source})
    assert Run.objects.latest("pk").config["corpus"]["source"] == corpus.source
    operator.post("/runs/new/", {**posted("tiny", corpus__source="/srv/x.txt"), "corpus.source:chosen": corpus.source})
    assert Run.objects.latest("pk").config["corpus"]["source"] == "/srv/x.txt"


def test_the_pages_of_a_run_lead_to_its_corpus(checked: Callable[..., Any], run: Any, viewer: Client) -> None:
    corpus = checked(name="my tiles")
    assert "not in the list" in viewer.get(f"/runs/{run.pk}/corpus/").content.decode() or True
    use(run, corpus)
    document = run.corpusdocuments.first()
    for address in (f"/runs/{run.pk}/corpus/", f"/runs/{run.pk}/corpus/{document.pk}/"):
        assert f'<a href="/corpora/{corpus.pk}/">my tiles</a>' in viewer.get(address).content.decode()
    assert f'href="/runs/{run.pk}/corpus/"' in viewer.get(f"/corpora/{corpus.pk}/").content.decode()


def test_a_deleted_corpus_keeps_its_files_while_a_run_names_it(
    checked: Callable[..., Any], run: Any, operator: Client, home: Path
) -> None:
    from webapp.corpora.models import Corpus
    from webapp.corpora.services import remove_deleted

    corpus = checked()
    use(run, corpus)
    answer = operator.post(f"/corpora/{corpus.pk}/act/delete/", follow=True)
    assert "1 runs that name it" in answer.content.decode()
    assert operator.get(f"/corpora/{corpus.pk}/").status_code == 404
    Corpus.objects.update(deleted_at=timezone.now() - timedelta(hours=2))
    assert remove_deleted() == 1 and Corpus.objects.filter(pk=corpus.pk).exists()  # the demo corpus has no run
    assert files_below(home) == [f"corpora/{corpus.pk}/tiles.jsonl"]
    use(run, Corpus(source="builtin:demo"))
    assert remove_deleted() == 1
    assert files_below(home) == []


def test_a_corpus_just_deleted_keeps_its_files_for_an_hour(
    checked: Callable[..., Any], operator: Client, home: Path
) -> None:
    from webapp.corpora.services import remove_deleted

    corpus = checked()
    operator.post(f"/corpora/{corpus.pk}/act/delete/")
    assert remove_deleted() == 0
    assert files_below(home) != []


def test_every_act_is_in_the_audit_log(checked: Callable[..., Any], operator: Client) -> None:
    from webapp.accounts.models import AuditEntry

    corpus = checked()
    operator.post(f"/corpora/{corpus.pk}/act/edit/", {"name": "other", "licence": "MIT"})
    operator.post(f"/corpora/{corpus.pk}/act/check/")
    operator.post(f"/corpora/{corpus.pk}/act/delete/")
    found = AuditEntry.objects.filter(action__startswith="corpus.").order_by("pk").values_list("action", flat=True)
    assert list(found) == ["corpus.uploaded", "corpus.edited", "corpus.checked", "corpus.deleted"]


@pytest.mark.parametrize("role", ["viewer", "reviewer"])
@pytest.mark.parametrize("act", ["edit", "check", "delete"])
def test_viewers_and_reviewers_look_and_do_not_act(
    act: str, role: str, checked: Callable[..., Any], as_role: Callable[[str], Client]
) -> None:
    corpus = checked()
    client = as_role(role)
    assert client.get("/corpora/").status_code == 200
    assert client.get(f"/corpora/{corpus.pk}/").status_code == 200
    assert client.get("/corpora/new/").status_code == 403
    assert client.post(f"/corpora/{corpus.pk}/act/{act}/", {"name": "x"}).status_code == 403
    corpus.refresh_from_db()
    assert (corpus.name, corpus.deleted_at, corpus.state) == ("tiles", None, "ready")


def test_hostile_names_and_documents_are_only_text(checked: Callable[..., Any], viewer: Client) -> None:
    bad = "<img src=x onerror=alert(1)>\u202e"
    line = f'{{"text": "{bad} <script>alert(2)</script>", "title": "{bad}", "id": "{bad}", "{bad}": "{bad}"}}\n'
    corpus = checked({f"{bad}.jsonl": line.encode()}, name=bad, licence=bad, notes=bad)
    for address in ("/corpora/", f"/corpora/{corpus.pk}/"):
        html = viewer.get(address).content.decode()
        assert "<img src=x" not in html and "<script>alert" not in html and "\u202e" not in html


def test_a_forgotten_check_is_sent_again(uploaded: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from webapp.corpora import tasks
    from webapp.corpora.models import Corpus

    corpus = uploaded()
    sent: list[int] = []
    monkeypatch.setattr(tasks, "send", lambda task, pk: sent.append(pk))
    tasks.sweep()
    assert corpus.pk not in sent
    Corpus.objects.filter(pk=corpus.pk).update(touched_at=timezone.now() - timedelta(minutes=1))
    tasks.sweep()
    assert corpus.pk in sent
