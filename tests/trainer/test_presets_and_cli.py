"""Presets are data; the command line says in one line what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.__main__ import main
from trainer.config import RunConfig
from trainer.errors import UserError
from trainer.presets import load_preset, preset_names, with_overrides

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_says_what_it_is_for(name: str) -> None:
    config = load_preset(name)
    assert config.preset == name and config.description
    assert config.needs_gpu == name.startswith("games")


def test_the_papers_columns() -> None:
    small, thinking, large = (load_preset(n) for n in ("games-4b", "games-8b", "games-30b-a3b"))
    for config in (small, thinking, large):
        s = config.schedule
        assert (s.rollouts, s.environments, s.plays, s.hinted_plays, s.regenerate_every, s.designer_delay) == (
            400,
            24,
            16,
            16,
            4,
            4,
        )
        assert (s.active_skills, len(s.skills)) == (3, 6)
        assert (config.designer.temperature, config.agent.temperature, config.hint.temperature) == (0.6, 0.6, 0.3)
        assert (config.designer.max_tokens, config.agent.max_tokens, config.hint.max_tokens) == (16384, 8192, 4096)
        assert (config.model.context_tokens, config.agent.max_turns) == (32768, 25)
        assert (config.memory.size, config.corpus.max_words, config.gates.audit, config.loss.compact_filter) == (
            200,
            6000,
            False,
            False,
        )
        assert config.optim.learning_rate == 1e-6 and config.optim.beta2 == 0.98 and config.optim.weight_decay == 0.1
    assert [c.loss.kl_coef for c in (small, thinking, large)] == [0.0, 0.005, 0.0]
    assert [c.model.thinking for c in (small, thinking, large)] == [False, True, False]
    late = load_preset("games-4b-late")
    assert (late.model.context_tokens, late.reward.band_low, late.reward.band_high, late.reward.ramp) == (
        49152,
        0.2,
        0.4,
        0.2,
    )


def test_the_ablations_differ_from_their_base_by_their_point_only() -> None:
    base = load_preset("games-30b-a3b").model_dump()
    for name, changed in {
        "no-corpus": {"corpus"}, "no-memory": {"memory"}, "frozen-designer": {"designer", "memory"},
        "learning-potential": {"reward"}, "solve-rate": {"reward"}, "two-skills": {"schedule"}, "fixed-pool": {"pool", "designer"},
        "rlve": {"pool", "designer", "schedule", "reward", "agent"},
    }.items():  # fmt: skip
        ablation = load_preset(f"games-30b-a3b-{name}").model_dump()
        assert {k for k in base if ablation[k] != base[k]} == changed | {"preset", "description"}


def test_the_demo_has_three_environments_per_active_skill() -> None:
    schedule = load_preset("demo").schedule
    assert schedule.environments >= 3 * schedule.active_skills


def test_overrides_reach_nested_settings_and_are_validated() -> None:
    assert with_overrides(load_preset("demo"), {"schedule.rollouts": 12, "seed": 3}).schedule.rollouts == 12
    with pytest.raises(UserError, match=r"there is no setting 'schedule\.rolouts'"):
        with_overrides(load_preset("demo"), {"schedule.rolouts": 12})
    with pytest.raises(UserError, match="there is no setting 'schedule'"):
        with_overrides(load_preset("demo"), {"schedule": 12})
    with pytest.raises(UserError, match=r"designer_delay.*regenerate_every"):
        with_overrides(load_preset("demo"), {"schedule.designer_delay": 1})


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="demo, tiny"):
        load_preset("nope")


def test_the_settings_model_and_presets_import_without_torch_and_django() -> None:
    code = (
        "import sys, trainer.config, trainer.events, trainer.errors, trainer.rundir, trainer.presets, trainer.metrics, "
        "trainer.corpus, trainer.regret, trainer.fork; trainer.presets.load_preset('demo'); "
        "print([m for m in ('torch', 'transformers', 'django', 'vllm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_show_config_prints_a_file_that_validate_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show-config", "tiny", "--set", "schedule.rollouts=3", "--set", "description=mine"]) == 0
    text = capsys.readouterr().out
    config = RunConfig.model_validate(json.loads(text))
    assert config.schedule.rollouts == 3 and config.description == "mine"
    file = tmp_path / "c.json"
    file.write_text(text)
    assert main(["validate", str(file)]) == 0
    assert "fine" in capsys.readouterr().out


def test_validate_prints_what_is_hardly_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = with_overrides(load_preset("demo"), {"schedule.environments": 2, "schedule.active_skills": 2})
    (tmp_path / "config.json").write_text(config.model_dump_json())
    assert main(["validate", str(tmp_path / "config.json")]) == 0
    assert "warning: the designer learns nothing: with schedule.environments 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "one JSON object"),
        ('{"schedule": {"rollouts": 0}}', "c.json: schedule.rollouts: it should be greater than or equal to 1"),
        (
            '{"schedule": {"rollout": 9}}',
            "there is no setting 'schedule.rollout'; `python -m trainer show-config demo` lists",
        ),
        ('{"reward": {"band_low": 0.7}}', "c.json: reward.band_low is above reward.band_high\n"),
        (
            '{"reward": {"band_low": 0.7}, "hint": {"max_tokens": 40000}}',
            "reward.band_low is above reward.band_high; hint.max_tokens does not fit model.context_tokens\n",
        ),
    ],
)
def test_validate_says_what_is_wrong(
    tmp_path: Path, content: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.json"
    file.write_text(content)
    assert main(["validate", str(file)]) == 2
    assert says in capsys.readouterr().err


def test_bad_input_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(tmp_path / "missing.json")]) == 2
    assert main(["show-config", "tiny", "--set", "oops"]) == 2
    assert main(["resume", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "cannot read" in err and "a.b=VALUE" in err
    assert "holds no config.json: it is no run directory; `run` starts a run in a new one" in err
    assert list(tmp_path.iterdir()) == [], "nothing is left in a directory that is no run's"
    (tmp_path / "file").write_text("")
    assert main(["run", str(tmp_path / "file"), "--preset", "tiny"]) == 2
    assert "is a file; give a new directory" in capsys.readouterr().err


def test_run_fails_with_one_line_and_an_event_when_the_model_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["run", str(tmp_path / "run"), "--preset", "tiny", "--set", "model.path=/no/such/model"])
    assert code == 2
    assert "/no/such/model" in capsys.readouterr().err
    last = json.loads((tmp_path / "run" / "attempts" / "1" / "events" / "000000.jsonl").read_text().splitlines()[-1])
    assert last["kind"] == "run_state" and last["payload"]["state"] == "failed" and last["payload"]["owner"] == "user"


def test_run_in_a_started_directory_points_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", str(tmp_path / "run")]
    main([*arguments, "--preset", "tiny", "--set", "corpus.source=/no/such/corpus"])
    assert main(arguments) == 2
    assert "resume" in capsys.readouterr().err
