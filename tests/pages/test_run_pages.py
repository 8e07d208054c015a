"""The list and the pages of one run: what they show, what they offer, and how they behave with nothing and with nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from webapp.core.templatetags.numbers import num
from webapp.runs.chartlist import charts_of, is_sparse
from webapp.runs.logtail import TAIL_BYTES, clean
from webapp.runs.overview import attention_of, figures_of, stages_of
from webapp.runs.states import Status


def new_run(**fields: Any) -> Any:
    from trainer.config import RunConfig
    from webapp.runs.models import Run

    base = {
        "name": "fresh",
        "slug": f"fresh-{Run.objects.count()}",
        "config": RunConfig().model_dump(mode="json"),
        "seed": 0,
    }
    return Run.objects.create(**{**base, "total_rollouts": 4, "status": "draft", **fields})


# The list ------------------------------------------------------------------------------------------------------------


def test_an_empty_list_says_what_to_do_next(operator: Client, viewer: Client) -> None:
    assert 'href="/runs/new/"' in operator.get("/runs/").content.decode()
    assert 'href="/runs/new/"' not in viewer.get("/runs/").content.decode()


def test_a_row_shows_the_newest_measured_value_not_the_newest_row(run: Any, viewer: Client) -> None:
    # Rollout 3 is no regeneration: its hinted win rate is None, the newest measured one is of rollout 2.
    assert run.metricpoints.get(name="win_rate/hinted", rollout=3).value is None
    measured = run.metricpoints.get(name="win_rate/hinted", rollout=2).value
    html = viewer.get(f"/runs/{run.pk}/row/").content.decode()
    assert f'<span class="hinted-text">{num(measured)}</span>' in html


def test_a_row_shows_the_same_interval_of_regret_as_the_run_itself(run: Any, viewer: Client) -> None:
    def shown(address: str, before: str) -> str:
        html = viewer.get(address).content.decode()
        return html[html.index(before) + len(before) :].partition("<")[0]

    row, page = f"/runs/{run.pk}/row/", f"/runs/{run.pk}/"
    points = run.metricpoints.filter(rollout=2)
    points.filter(name="regret/mean").update(value=0.5)
    points.filter(name="regret/standard_error").update(value=0.2)
    cell, figure = (
        '<td class="n" data-col="regret">',
        'regret, 95 %</span>\n      <span class="value"><span data-value>',
    )
    assert (shown(row, cell), shown(page, figure)) == ("0.5 ± 0.4", "0.5 ± 0.4")
    # An error that was measured with another regret is not this one's.
    run.metricpoints.filter(rollout=0, name="regret/standard_error").update(value=0.2)
    points.filter(name="regret/standard_error").update(value=None)
    assert (shown(row, cell), shown(page, figure)) == ("0.500", "0.500")
    assert viewer.get(f"/api/v1/runs/{run.pk}/").json()["figures"]["regret_error"] is None


def test_a_run_that_measured_nothing_shows_dashes_not_zeros(viewer: Client) -> None:
    html = viewer.get(f"/runs/{new_run().pk}/row/").content.decode()
    assert '<span class="unhinted-text">–</span>' in html
    assert ">0.000<" not in html


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("status=failed", {"gone"}), ("status=active", {"busy"}), ("tag=cpu", {"gone"}), ("preset=tiny", {"busy"}), ("q=US", {"busy"}),
        ("owner=nobody", set()), ("status=failed&tag=cpu", {"gone"}), ("status=nonsense", set()),
        ("tag=%27%22%3C", set()), ("", {"gone", "busy"}),
    ],
)  # fmt: skip
def test_filters_in_the_address_narrow_the_list(query: str, names: set[str], viewer: Client) -> None:
    new_run(name="gone", status="failed", tags=["cpu"])
    new_run(name="busy", status="running", preset="tiny", gpu_set="a")
    page = viewer.get(f"/runs/?{query}").context["page"]
    assert {run.name for run in page.rows} == names


def test_every_run_is_on_exactly_one_page(viewer: Client) -> None:
    for index in range(120):
        new_run(name=f"run {index}")
    seen: list[str] = []
    cursor = ""
    while True:
        page = viewer.get("/runs/", {"after": cursor}).context["page"]
        seen += [run.name for run in page.rows]
        if not page.next_cursor:
            break
        cursor = page.next_cursor
    assert seen == [f"run {index}" for index in reversed(range(120))]


def test_a_damaged_page_address_is_a_clear_refusal(viewer: Client) -> None:
    new_run()
    answer = viewer.get("/runs/?after=%01garbage")
    assert answer.status_code == 400
    assert "damaged" in answer.content.decode()


def test_the_list_costs_the_same_number_of_queries_for_any_number_of_runs(
    viewer: Client, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    for _ in range(40):
        new_run()
    with django_assert_max_num_queries(18):
        viewer.get("/runs/")


# Overview ------------------------------------------------------------------------------------------------------------


def phases(**states: tuple[str, int, int]) -> dict[str, Any]:
    return {
        name: {"state": state, "done": done, "total": total, "elapsed_s": 1.0}
        for name, (state, done, total) in states.items()
    }


@pytest.mark.django_db
def test_stages_follow_the_loop_and_say_how_far_each_is() -> None:
    run = new_run(
        status="running",
        gpu_set="a",
        rollout=None,
        phase={"regeneration": True, "phases": phases(design=("finished", 6, 6), gates=("progress", 5, 6))},
    )
    assert [(stage.name, stage.state, stage.done, stage.total) for stage in stages_of(run=run)][:3] == [
        ("design", "done", 6, 6), ("gates", "active", 5, 6), ("hints", "todo", None, None),
    ]  # fmt: skip


@pytest.mark.django_db
def test_stages_of_a_kept_set_are_skipped_not_open() -> None:
    run = new_run(
        status="running", gpu_set="a", phase={"regeneration": False, "phases": phases(play=("started", 0, 48))}
    )
    assert [stage.state for stage in stages_of(run=run)] == [
        "skipped",
        "skipped",
        "skipped",
        "active",
        "todo",
        "todo",
        "todo",
    ]


@pytest.mark.django_db
@pytest.mark.parametrize(("status", "state"), [("failed", "failed"), ("lost", "failed"), ("running", "active")])
def test_the_stage_in_which_a_run_broke_is_marked(status: str, state: str) -> None:
    run = new_run(status=status, gpu_set="a", phase={"regeneration": True, "phases": phases(design=("progress", 1, 6))})
    assert stages_of(run=run)[0].state == state


def test_the_interval_of_regret_is_that_of_its_own_rollout(run: Any) -> None:
    regret = next(figure for figure in figures_of(run=run) if figure.key == "regret/mean")
    error = run.metricpoints.get(name="regret/standard_error", rollout=2).value
    assert regret.rollout == 2
    assert regret.half_width == pytest.approx(1.96 * error)
    run.metricpoints.filter(name="regret/standard_error", rollout=2).update(value=None)
    regret = next(figure for figure in figures_of(run=run) if figure.key == "regret/mean")
    assert regret.half_width is None


def test_attention_counts_what_its_link_lists(ingested: Callable[..., Any], viewer: Client) -> None:
    run = ingested(environments=9, plays=2, rollouts=3, seed=4)
    newest = run.environments.filter(rollout=2)
    newest.filter(slot=0).update(hint_state="leaky")
    newest.filter(slot=1).update(hint_state="none")
    run.episodes.filter(environment=newest.get(slot=2)).update(status="env_timeout", reward=None)
    items = attention_of(run=run)
    assert {"hung", "leaky hint", "no hint"} <= {item.word for item in items}
    for item in items:
        page = viewer.get(f"/runs/{run.pk}/environments/?{item.query}").context["page"]
        assert len(page.rows) == item.count, item.word


def test_a_group_whose_episodes_all_ended_alike_has_zero_spread(run: Any) -> None:
    environment = run.environments.filter(rollout=2).first()
    run.episodes.filter(environment_key=environment.key, arm="unhinted").update(reward=1.0, status="won")
    flagged = next(item for item in attention_of(run=run) if item.word == "zero spread")
    assert flagged.count >= 1


@pytest.mark.parametrize(
    ("status", "offered"),
    [
        ("draft", {"start"}), ("queued", {"stop"}), ("starting", {"stop"}), ("running", {"pause", "checkpoint", "stop"}),
        ("pausing", {"unpause", "stop"}), ("paused", {"unpause", "checkpoint", "stop"}), ("stopping", set()), ("stopped", {"resume"}),
        ("failed", {"resume"}), ("lost", {"resume"}), ("completed", set()),
    ],
)  # fmt: skip
def test_only_acts_that_are_possible_are_offered(status: str, offered: set[str], operator: Client) -> None:
    run = new_run(status=status, gpu_set="a")
    assert {act.name for act in operator.get(f"/runs/{run.pk}/").context["acts"]} == offered


def test_case_10_nothing_can_be_resumed_when_nothing_is_left_to_do(operator: Client) -> None:
    run = new_run(status="stopped", rollouts_done=4, total_rollouts=4)
    assert [act.name for act in operator.get(f"/runs/{run.pk}/").context["acts"]] == []


def test_every_state_has_a_page(operator: Client) -> None:
    for status in Status.values:
        run = new_run(status=status, gpu_set=f"set-{status}")
        assert operator.get(f"/runs/{run.pk}/").status_code == 200, status


@pytest.mark.parametrize(
    "tab",
    [
        "",
        "charts/",
        "environments/",
        "candidates/",
        "memory/",
        "corpus/",
        "regret/",
        "episodes/",
        "checkpoints/",
        "config/",
        "log/",
    ],
)
def test_a_run_without_any_data_opens_everywhere(tab: str, viewer: Client) -> None:
    answer = viewer.get(f"/runs/{new_run().pk}/{tab}")
    assert answer.status_code == 200
    assert "NaN" not in answer.content.decode()


@pytest.mark.parametrize(
    "path",
    [
        "999999/",
        "999999/series/",
        "999999/log.txt",
        "{run}/environments/none/",
        "{run}/candidates/none/",
        "{run}/episodes/999999/",
        "{run}/pairs/none/0/",
        "{run}/log.txt",
    ],
)
def test_what_is_not_there_is_not_found(path: str, viewer: Client) -> None:
    assert viewer.get(f"/runs/{path.format(run=new_run().pk)}").status_code == 404


def test_the_page_starts_its_socket_at_the_cursor_it_was_made_at(run: Any, viewer: Client) -> None:
    assert f'data-cursor="{run.last_cursor}"' in viewer.get(f"/runs/{run.pk}/").content.decode()


def test_an_htmx_act_answers_with_the_new_header_and_the_message(run: Any, operator: Client) -> None:
    answer = operator.post(f"/runs/{run.pk}/act/pause/", headers={"HX-Request": "true"})
    html = answer.content.decode()
    assert 'id="run-head" data-status="pausing"' in html
    assert "pauses at its next safe point" in html
    assert "Pause</button>" not in html


def test_an_act_that_is_no_longer_possible_says_why(run: Any, operator: Client) -> None:
    operator.post(f"/runs/{run.pk}/act/stop/")
    html = operator.post(f"/runs/{run.pk}/act/pause/", headers={"HX-Request": "true"}).content.decode()
    assert "message error" in html
    assert "is stopping; pause is possible when a run is running" in html


def test_a_failed_run_says_who_and_why(viewer: Client) -> None:
    run = new_run(status="failed", failure_owner="infrastructure", failure_message="the disk is full")
    html = viewer.get(f"/runs/{run.pk}/").content.decode()
    assert "Failed (infrastructure)." in html
    assert "the disk is full" in html


def test_renaming_tagging_and_notes_go_through_one_form(run: Any, operator: Client) -> None:
    operator.post(f"/runs/{run.pk}/edit/", {"name": "  new   name ", "tags": "a, b,a", "notes": "watch it"})
    run.refresh_from_db()
    assert (run.name, run.tags, run.notes) == ("new name", ["a", "b"], "watch it")


# Charts, settings, log -----------------------------------------------------------------------------------------------


def test_metrics_are_grouped_by_prefix_with_the_known_ones_first() -> None:
    groups = charts_of(["zeta/x", "loss/total", "win_rate/hinted", "win_rate/unhinted", "alone"])
    assert [group.key for group in groups] == ["win_rate", "loss", "other", "zeta"]
    assert [chart.title for chart in groups[0].charts] == ["Win rate by arm"]


def test_metrics_of_a_regeneration_are_known_as_such() -> None:
    assert is_sparse("regret/mean")
    assert is_sparse("win_rate/hinted")
    assert not is_sparse("win_rate/unhinted")


def test_settings_say_what_differs_from_the_preset(run: Any, viewer: Client) -> None:
    context = viewer.get(f"/runs/{run.pk}/config/").context
    rows = {row["spec"].path: row for group in context["groups"] for row in group["rows"]}
    assert rows["schedule.regenerate_every"]["differs"]  # 2 here, 4 in the preset
    assert (rows["schedule.regenerate_every"]["text"], rows["schedule.regenerate_every"]["other"]) == ("2", "4")
    assert not rows["engine.threads"]["differs"]
    assert context["changed"] == sum(row["differs"] for row in rows.values())


def test_settings_can_be_compared_with_the_run_they_were_cloned_from(run: Any, viewer: Client) -> None:
    config = {**run.config, "seed": 1234}
    clone = new_run(config=config, parent=run, preset="demo")
    context = viewer.get(f"/runs/{clone.pk}/config/?against=parent").context
    assert [row["spec"].path for group in context["groups"] for row in group["rows"] if row["differs"]] == ["seed"]


def test_the_settings_file_is_what_the_trainer_takes(run: Any, viewer: Client) -> None:
    from trainer.config import RunConfig

    assert RunConfig.model_validate(viewer.get(f"/runs/{run.pk}/config.json").json()) == RunConfig.model_validate(
        run.config
    )


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("10 %\r50 %\r100 %\ndone", "100 %\ndone"), ("\x1b[1;32mgreen\x1b[0m", "green"), ("a\r\nb", "a\nb"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"), ("half\r", "half"), ("", ""),
    ],
)  # fmt: skip
def test_the_log_is_cleaned_of_what_terminals_obey(printed: str, shown: str) -> None:
    assert clean(printed) == shown


def test_a_line_of_fifty_megabytes_is_cut_and_says_so() -> None:
    shown = clean("x" * 50_000_000)
    assert len(shown) < 5_000
    assert "more characters" in shown


def test_only_the_end_of_a_long_log_is_read(run: Any, viewer: Client) -> None:
    from pathlib import Path

    path = Path(run.directory) / "log.txt"
    path.write_text("first line\n" + "filler line\n" * 40_000 + "last line\n")
    tail = viewer.get(f"/runs/{run.pk}/log/").context["tail"]
    assert tail.start > 0
    assert len(tail.text) <= TAIL_BYTES
    assert tail.text.startswith("filler line\n")
    assert tail.text.endswith("last line\n")


def test_a_log_that_is_a_link_out_of_the_run_directory_is_not_served(run: Any, viewer: Client) -> None:
    from pathlib import Path

    path = Path(run.directory) / "log.txt"
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert viewer.get(f"/runs/{run.pk}/log.txt").status_code == 404
    assert "root:" not in viewer.get(f"/runs/{run.pk}/log/").content.decode()


def test_times_are_relative_with_the_exact_instant_beside_them(viewer: Client) -> None:
    run = new_run(status="running", gpu_set="a", started_at=timezone.now())
    assert "data-relative" in viewer.get(f"/runs/{run.pk}/").content.decode()
