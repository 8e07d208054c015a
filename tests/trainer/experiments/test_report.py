"""The page from hand-made results: means, intervals, differences and verdicts worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.errors import UserError
from trainer.experiments.charts import draw_charts, mean_points
from trainer.experiments.report import ModelResults, difference, gains, load_results, report
from trainer.experiments.results import (
    Exploration,
    Rate,
    Result,
    Untouched,
    append_exploration,
    read_explorations,
    read_result,
    result_path,
    write,
)


def rate(value: float | None, half: float | None = 0.05) -> Rate:
    return Rate(win_rate=value, half_interval=half, environments=60, plays=480, faults=0, by_family={"Grid": 0.5})


def untouched(model: str = "aaa") -> Untouched:
    return Untouched(
        model=model,
        sets={"probe": "p", "heldout": "h"},
        evaluation="e",
        probe=rate(0.25, 0.0625),
        heldout=rate(0.2),
        seconds=1.0,
    )


def result(
    arm: str, seed: int, heldout: float | None, probe: float = 0.4, *, model: str = "aaa", **values: object
) -> Result:
    defaults = {
        "settings": "s1", "commit": "c", "cores": 2, "rollouts": 20, "episodes_unhinted": 1440, "episodes_hinted": 360,
        "episodes_faulted": 0, "probe_before": 0.25, "heldout_before": 0.2, "probe_curve": {"0": 0.25, "10": 0.3, "20": probe},
        "curve": {
            "win_rate/unhinted": [0.2] * 10 + [0.4] * 10,
            "diversity/vendi_share": ([0.5] + [None] * 3) * 2 + [None] * 4 + ([0.2] + [None] * 3) * 2,
        },
        "train_seconds": 300.0, "evaluate_seconds": 60.0,
    }  # fmt: skip
    parts = {"arm": arm, "seed": seed, "model": model, "probe": rate(probe), "heldout": rate(heldout)}
    return Result.model_validate(defaults | parts | values)


SPADE = [result("spade", seed, value) for seed, value in enumerate((0.38, 0.40, 0.42))]
POOL = [result("fixed-pool", seed, value) for seed, value in enumerate((0.28, 0.30, 0.32))]


def page(*results: Result, notes: str = "") -> str:
    return report(
        [ModelResults(untouched(), results)], notes=notes, plays=8, charts=lambda _: ["experiments/charts/x.svg"]
    )


def row(text: str, title: str, number: int = 0) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in lines[number].strip("|").split("|")]


def test_only_the_model_with_most_results_lists_what_was_not_run() -> None:
    few = [result("spade", 0, 0.4, model="bbb")]
    models = [ModelResults(untouched(), (*SPADE, *POOL)), ModelResults(untouched("bbb"), tuple(few))]
    first, second = report(models, notes="", plays=8, charts=lambda _: ()).split("## Model `bbb`")
    assert "| no memory | 0 | –" in first and "Not run from" not in first and "SPADE, 100 rollouts beats" in first
    assert "no memory |" not in second and "100 rollouts beats" not in second
    assert "Not run from this model: fixed pool, no memory, no corpus," in second and "| SPADE | 1 |" in second


def test_a_section_says_how_large_its_model_is_where_that_is_known() -> None:
    sized = untouched().model_copy(update={"parameters": 1_886_592})
    assert "## Model `aaa`, 1.89 million parameters\n" in report(
        [ModelResults(sized, ())], notes="", plays=8, charts=lambda _: ()
    )
    assert "## Model `aaa`\n" in page()


def test_gains_are_points_over_the_untouched_model_with_an_interval_over_seeds() -> None:
    # 18, 20, 22 points: mean 20, standard deviation 2, half width 4.303 * 2 / sqrt(3) = 4.97.
    found = gains(SPADE, "heldout")
    assert found is not None
    assert found.mean == pytest.approx(20) and found.half == pytest.approx(4.9687, abs=1e-3)


def test_the_difference_of_two_arms_has_welchs_interval() -> None:
    # 20 - 10 points; both variances 4, so 4/3 + 4/3 and 4 degrees of freedom: 2.776 * sqrt(8/3) = 4.533.
    found = difference(SPADE, POOL, "heldout")
    assert found is not None
    assert found.mean == pytest.approx(10) and found.half == pytest.approx(4.533, abs=1e-3)
    assert difference(SPADE, [], "heldout") is None
    one = difference(SPADE[:1], POOL, "heldout")
    assert one is not None and one.half is None and one.n == 1


def test_the_table_shows_each_arm_and_what_is_not_measured() -> None:
    text = page(*SPADE, *POOL)
    assert row(text, "SPADE") == ["SPADE", "3", "1440", "40.0 %", "+20.0 ± 5.0", "+10.0 ± 4.5", "40.0 %", "+15.0 ± 0.0"]
    assert row(text, "fixed pool") == ["fixed pool", "3", "1440", "30.0 %", "+10.0 ± 5.0", "–", "40.0 %", "+15.0 ± 0.0"]
    assert row(text, "no memory") == ["no memory", "0", "–", "–", "–", "–", "–", "–"]
    assert "held-out 20.0 % ± 5.0, probe 25.0 % ± 6.2" in text
    assert row(text, "SPADE", 1) == ["SPADE", "0.20 → 0.40", "– → –", "– → –", "– → –", "0.50 → 0.20"]
    assert "6 runs, 30 minutes of training in all (5 a run, one thread), 6 minutes of evaluation." in text


def test_targets_are_judged_by_the_stored_figures() -> None:
    text = page(*SPADE, *POOL)
    assert row(text, "SPADE beats the untouched model on the held-out set")[-1] == "reached"
    assert row(text, "SPADE beats its fixed pool on the held-out set")[1:] == ["5", "+10.0 ± 4.5", "reached"]
    collapse = row(text, "diversity with the corpus does not collapse (at least half of the first Vendi/n is left)")
    assert collapse[-2:] == ["40 % of it", "**missed**"]
    weak = page(result("spade", 0, 0.25))
    assert row(weak, "SPADE beats the untouched model on the held-out set")[1:] == [
        "15",
        "+5.0",
        "**missed** (1 seed only)",
    ]
    assert row(weak, "SPADE beats its fixed pool on the held-out set")[1:] == ["5", "–", "not measured"]


def test_the_longer_runs_are_compared_with_the_pool_that_trained_as_long() -> None:
    longer = [result("spade-long", 0, 0.5), result("fixed-pool-long", 0, 0.25)]
    text = page(*SPADE, *POOL, *longer)
    assert row(text, "SPADE, 100 rollouts")[5] == "+25.0"
    assert row(text, "fixed pool, 100 rollouts")[5] == "–"
    assert row(text, "SPADE, 100 rollouts beats its fixed pool on the held-out set")[2] == "+25.0"
    assert row(text, "SPADE beats its fixed pool on the held-out set")[2] == "+10.0 ± 4.5"


def test_a_set_that_could_not_be_played_is_not_zero() -> None:
    text = page(result("spade", 0, None))
    assert row(text, "SPADE")[3:6] == ["–", "–", "–"]


def test_results_of_different_settings_are_named() -> None:
    assert "different settings stand side by side in: SPADE." in page(SPADE[0], result("spade", 1, 0.4, settings="s2"))
    assert "different settings" not in page(*SPADE)


def test_a_run_that_ended_early_is_named_with_its_reason() -> None:
    text = page(SPADE[0], result("spade", 1, 0.4, rollouts=12, ended_early="rollout 12: none of 45 passed"))
    assert "- SPADE, seed 1, was scored after 12 rollouts, where it ended: rollout 12: none of 45 passed." in text
    assert text.count("was scored after") == 1


def test_explorations_are_listed_with_what_was_changed_and_what_it_brought(tmp_path: Path) -> None:
    made = {"model": "aaa", "commit": "c", "seed": 2, "rollouts": 20, "train_seconds": 9.0}
    one = Exploration(
        **made, changed={"optim.learning_rate": 0.001}, probe_before=0.25, probe_curve={"0": 0.25, "20": 0.375}
    )
    two = Exploration(**made, changed={}, probe_before=0.25, probe_curve={"0": 0.25, "20": None})
    curve = {"0": 0.25, "7": 0.3}
    three = Exploration(**made, changed={}, probe_before=0.25, probe_curve=curve, ended_early="nothing passed")
    append_exploration(tmp_path, three)
    append_exploration(tmp_path, one)
    append_exploration(tmp_path, two)
    text = report([], notes="", plays=8, charts=lambda _: [], explorations=read_explorations(tmp_path))
    assert "| `aaa` | optim.learning_rate = 0.001 | 2 | 0: 25.0 %, 20: 37.5 % | +12.5 |" in text
    assert "| `aaa` | nothing | 2 | 0: 25.0 %, 20: – | – |" in text
    assert "| `aaa` | nothing | 2 | 0: 25.0 %, 7: 30.0 %; ended: nothing passed | +5.0 |" in text
    (tmp_path / "explorations.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="no exploration of this version"):
        read_explorations(tmp_path)


def test_notes_are_taken_over_and_a_page_without_results_says_so() -> None:
    assert page(*SPADE, notes="## What did not work\n\nThis.").endswith("## What did not work\n\nThis.\n")
    assert "No result is stored yet." in report([], notes="", plays=8, charts=lambda _: [])


def test_results_of_another_model_are_a_section_of_their_own(tmp_path: Path) -> None:
    for model, count in (("aaa", 1), ("bbb", 2)):
        write(tmp_path / model / "untouched.json", untouched(model))
        for seed in range(count):
            write(result_path(tmp_path, model, "spade", seed), result("spade", seed, 0.4, model=model))
    models = load_results(tmp_path)
    assert [(m.untouched.model, len(m.of("spade"))) for m in models] == [("bbb", 2), ("aaa", 1)]
    text = report(models, notes="", plays=8, charts=lambda _: [])
    assert text.index("## Model `bbb`") < text.index("## Model `aaa`")
    assert [row(text, "SPADE", number)[1] for number in (0, 2)] == ["2", "1"]


def test_a_result_survives_its_file_and_a_broken_file_is_named(tmp_path: Path) -> None:
    path = result_path(tmp_path, "aaa", "spade", 1)
    write(path, SPADE[1])
    assert read_result(path) == SPADE[1]
    assert path.stat().st_size < 4000
    path.write_text('{"arm": "spade"}')
    with pytest.raises(UserError, match=r"spade-1\.json is no stored result"):
        read_result(path)


def test_charts_are_small_svg_files_that_do_not_change_from_one_drawing_to_the_next(tmp_path: Path) -> None:
    model = ModelResults(untouched(), (*SPADE, *POOL))
    paths = draw_charts(model, tmp_path / "charts", seen_from=tmp_path)
    assert paths == ["charts/aaa-probe.svg", "charts/aaa-own.svg", "charts/aaa-diversity.svg"]
    first = [(tmp_path / path).read_bytes() for path in paths]
    assert all(b"fixed pool" in data and len(data) < 60_000 for data in first)
    draw_charts(model, tmp_path / "charts", seen_from=tmp_path)
    assert [(tmp_path / path).read_bytes() for path in paths] == first


def test_curves_are_means_over_all_seeds_that_go_as_far() -> None:
    assert mean_points([{1: 0.2, 2: 0.4}, {1: 0.4}, {}]) == {1: pytest.approx(0.3), 2: 0.4}
    assert mean_points([{1: 0.2, 2: 0.9, 3: 0.4}, {1: 0.4, 3: 0.6}]) == {1: pytest.approx(0.3), 3: pytest.approx(0.5)}
