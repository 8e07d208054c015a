"""The gates once more over a stored program, and programs edited by people."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from tests.environments.conftest import GUESS
from webapp.environments.selectors_play import changed_counts, diff_lines


def judged(job: Any) -> Any:
    from webapp.environments.sandboxing.gating import examine

    examine(gate_run_id=job.pk)
    job.refresh_from_db()
    return job


def test_an_honest_program_passes_all_gates_and_the_report_is_kept(program: Callable[..., Any], reviewer: Any) -> None:
    from webapp.environments.services import rerun_gates

    job = judged(rerun_gates(actor=reviewer, environment=program()))
    outcomes = {stage["stage"]: stage["outcome"] for stage in job.stages}
    assert (job.state, job.accepted, job.failed_stage) == ("done", True, None)
    assert outcomes["not-guessable"] == "passed"
    assert outcomes["solvable"] == "unverifiable"  # it has no solution()
    assert job.finished_at
    assert job.sandbox_tier


def test_a_program_that_does_not_compile_is_rejected_with_its_line(program: Callable[..., Any], reviewer: Any) -> None:
    from webapp.environments.services import rerun_gates

    job = judged(rerun_gates(actor=reviewer, environment=program("class GuessEnv:\n    def reset(self:\n")))
    assert (job.state, job.accepted, job.failed_stage) == ("done", False, "parse")
    assert job.stages[0]["line"] == 2


def test_the_gates_of_the_run_hold_with_its_own_guess_rule(
    program: Callable[..., Any], reviewer: Any, run: Any
) -> None:
    from webapp.environments.services import rerun_gates

    easy = GUESS.replace("130 + seed % 70", "seed % 20")  # what the random player finds in 25 turns now and then
    run.config["gates"].update(max_guess_rate=1.0, guess_seeds=20)
    run.save(update_fields=["config"])
    assert judged(rerun_gates(actor=reviewer, environment=program(easy))).accepted is True
    run.config["gates"].update(max_guess_rate=0.0)
    run.save(update_fields=["config"])
    strict = judged(rerun_gates(actor=reviewer, environment=program(easy)))
    assert (strict.accepted, strict.failed_stage) == (False, "not-guessable")


def test_a_broken_sandbox_leaves_the_program_unjudged(program: Callable[..., Any], reviewer: Any, run: Any) -> None:
    from webapp.environments.services import rerun_gates

    run.config["sandbox"]["minimum_tier"] = "vault"
    run.save(update_fields=["config"])
    job = judged(rerun_gates(actor=reviewer, environment=program()))
    assert (job.state, job.accepted, job.stages) == ("failed", None, [])
    assert "vault" in job.failure


def test_a_variant_is_kept_with_its_parent_and_goes_through_the_gates(
    program: Callable[..., Any], reviewer: Any
) -> None:
    from webapp.environments.services import create_variant

    environment = program()
    first = create_variant(
        actor=reviewer, environment=environment, code=GUESS.replace("Right.", "Yes."), note=" kinder\n word "
    )
    second = create_variant(actor=reviewer, environment=environment, code=first.code + "# more\n", parent=first)
    assert (first.number, first.parent, first.note, first.by) == (1, None, "kinder word", reviewer)
    assert (second.number, second.parent) == (2, first)
    assert judged(first.gate_runs.get()).accepted is True
    environment.refresh_from_db()
    assert environment.code == GUESS


def test_a_variant_never_reaches_the_run(program: Callable[..., Any], reviewer: Any, run: Any) -> None:
    from webapp.environments.services import create_variant

    before = (run.environments.count(), run.candidates.count(), run.commands.count())
    create_variant(actor=reviewer, environment=program(), code=GUESS + "#\n")
    assert (run.environments.count(), run.candidates.count(), run.commands.count()) == before


def test_a_variant_without_a_change_or_too_large_is_refused(
    program: Callable[..., Any], reviewer: Any, run: Any
) -> None:
    from webapp.environments.services import create_variant
    from webapp.runs.errors import ActRefused

    environment = program()
    environment.code_digest = sha256(GUESS.encode()).hexdigest()
    environment.save()
    with pytest.raises(ActRefused, match="Nothing was changed"):
        create_variant(actor=reviewer, environment=environment, code=GUESS.replace("\n", "\r\n"))
    limit = run.config["gates"]["source_bytes"]
    with pytest.raises(ActRefused, match="bytes"):
        create_variant(actor=reviewer, environment=environment, code="#" * (limit + 1))


def test_five_gate_runs_of_a_person_may_wait(program: Callable[..., Any], reviewer: Any) -> None:
    from webapp.environments.services import rerun_gates
    from webapp.runs.errors import ActRefused

    environment = program()
    for _ in range(5):
        rerun_gates(actor=reviewer, environment=environment)
    with pytest.raises(ActRefused, match="wait"):
        rerun_gates(actor=reviewer, environment=environment)


@pytest.mark.django_db(transaction=True)
def test_one_person_makes_a_variant_and_starts_a_play_at_once(
    program: Callable[..., Any], reviewer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from concurrent.futures import ThreadPoolExecutor
    from threading import Event

    from django.db import connections, transaction

    from webapp.environments import services
    from webapp.environments.models import PlaySession, Variant

    environment, judge = program(GUESS), services.rerun_gates
    begun, locked = Event(), Event()

    def play() -> None:
        try:
            with transaction.atomic():
                services.start_play(actor=reviewer, environment=environment, seed=1)
                begun.set()
                assert locked.wait(timeout=60)  # the variant holds the environment that the play refers to
        finally:
            connections.close_all()

    def tell_and_judge(**arguments: Any) -> Any:
        locked.set()
        return judge(**arguments)  # waits for the play, which has locked the person

    monkeypatch.setattr(services, "rerun_gates", tell_and_judge)
    with ThreadPoolExecutor(1) as threads:
        playing = threads.submit(play)
        assert begun.wait(timeout=60)
        services.create_variant(actor=reviewer, environment=environment, code=GUESS + "# another\n")
        playing.result()
    assert (Variant.objects.count(), PlaySession.objects.count()) == (1, 1)


def test_a_difference_names_the_lines_of_both_texts() -> None:
    lines = diff_lines(old="a\nb\nc\nd\ne\nf\ng\nh", new="a\nb\nc\nd\ne\nX\ng\nh\ni", context=1)
    assert [(line.kind, line.old, line.new, line.text) for line in lines] == [
        ("gap", None, None, ""), ("same", 5, 5, "e"), ("removed", 6, None, "f"), ("added", None, 6, "X"), ("same", 7, 7, "g"),
        ("same", 8, 8, "h"), ("added", None, 9, "i"),
    ]  # fmt: skip
    assert changed_counts(lines) == (2, 1)
    assert diff_lines(old="a", new="a") == []


def test_a_difference_that_would_take_long_to_compare_is_shown_as_replaced_between_head_and_tail() -> None:
    old, new = (["head", *("#" if i % 2 else f"{name}{i}" for i in range(1200)), "tail"] for name in "ab")
    lines = diff_lines(old="\n".join(old), new="\n".join(new))
    assert changed_counts(lines) == (1199, 1199)
    assert [(line.kind, line.text) for line in lines if line.kind == "same"] == [
        ("same", "head"),
        ("same", "#"),
        ("same", "tail"),
    ]
    assert [line.text for line in lines if line.kind != "added"] == old
    assert [line.text for line in lines if line.kind != "removed"] == new


def test_a_long_program_with_many_changes_is_compared_line_by_line() -> None:
    old = [f"line {i}" if i % 5 else "" for i in range(500)]
    new = [f"{line} changed" if i % 10 == 7 else line for i, line in enumerate(old)]
    assert changed_counts(diff_lines(old="\n".join(old), new="\n".join(new))) == (50, 50)


# Pages ---------------------------------------------------------------------------------------------------------------


def test_pages_of_a_play_show_typed_faults_and_the_agents_play_of_the_seed(
    program: Callable[..., Any], run: Any, as_role: Callable[..., Any]
) -> None:
    from tests.environments.test_play import BREAKS, play
    from webapp.environments.models import PlaySession

    environment = program(BREAKS)
    client = as_role("reviewer")
    episode = run.episodes.filter(environment=environment, arm="hinted").first()
    address = f"/runs/{run.pk}/environments/{environment.key}/play/"
    assert str(episode.seed) in client.get(address).content.decode()
    page = client.post(address, {"seed": str(episode.seed)})
    session = PlaySession.objects.get()
    assert page["Location"] == f"/runs/{run.pk}/play/{session.pk}/"
    assert "Starting the program" in client.get(page["Location"]).content.decode()
    play(session, "1")
    html = client.get(f"/runs/{run.pk}/play/{session.pk}/board/").content.decode()
    assert "step: exception" in html
    assert "ZeroDivisionError" in html
    assert "no reward" in html
    assert f"/runs/{run.pk}/episodes/{episode.pk}/" in html


def test_hostile_observations_are_text_on_the_board(
    program: Callable[..., Any], run: Any, as_role: Callable[..., Any]
) -> None:
    from tests.environments.test_play import play
    from webapp.accounts.models import User
    from webapp.environments.services import start_play

    client = as_role("reviewer")
    attack = GUESS.replace(
        "Guess a number from 100 to 199: \\\\boxed{{N}}",
        "<img src=x onerror=alert(1)> \\\\boxed{{' onmouseover='alert(2)}}",
    )
    assert attack != GUESS
    session = play(start_play(actor=User.objects.get(), environment=program(attack), seed=1))
    html = client.get(f"/runs/{run.pk}/play/{session.pk}/").content.decode()
    assert session.replies, session.fault
    assert "<img src=x" not in html
    assert "&lt;img src=x" in html
    assert "' onmouseover='alert" not in html


def test_the_page_of_a_variant_shows_what_was_changed(
    program: Callable[..., Any], reviewer: Any, run: Any, viewer: Any
) -> None:
    from webapp.environments.services import create_variant

    environment = program()
    create_variant(actor=reviewer, environment=environment, code=GUESS.replace("Right.", "<b>Yes.</b>"))
    html = viewer.get(f"/runs/{run.pk}/environments/{environment.key}/variants/1/").content.decode()
    assert '<span class="line removed">' in html
    assert "&lt;b&gt;Yes." in html
    assert "never sent into a run" in html
    assert "variants/1/" in viewer.get(f"/runs/{run.pk}/environments/{environment.key}/").content.decode()


def test_a_viewer_looks_on_and_cannot_act(program: Callable[..., Any], reviewer: Any, run: Any, viewer: Any) -> None:
    from tests.environments.test_play import play
    from webapp.environments.services import start_play

    session = play(start_play(actor=reviewer, environment=program(), seed=1))
    html = viewer.get(f"/runs/{run.pk}/play/{session.pk}/").content.decode()
    assert "you look on" in html
    assert 'id="action"' not in html
