"""Each gate rejects what it is for, names the stage and the line, and lets an honest game through."""

from __future__ import annotations

import json
import random

import pytest

from sandbox import GuessRule, Report, Sandbox
from sandbox.gates import STAGES
from sandbox.players import options_of, random_action
from tests.sandbox.programs import GUESS, environment


def outcomes(report: Report) -> dict[str, str]:
    return {stage.stage: stage.outcome for stage in report.stages}


def test_an_honest_game_passes_every_gate(sandbox: Sandbox) -> None:
    report = sandbox.examine(GUESS)
    assert report.accepted
    assert report.failed_stage is None
    assert outcomes(report) == dict.fromkeys(STAGES, "passed")
    assert report.class_name == "GuessEnv"
    assert report.tier == sandbox.tier
    assert report.measures["determinism"] == 1.0
    assert report.measures["guess_rate"] == 0.0
    assert report.measures["turns"] == 25.0
    assert report.measures["branching"] == 1.0
    assert report.measures["solved_frac"] == 1.0
    assert report.measures["state_variables"] == 3.0
    assert report.measures["lines"] == GUESS.count("\n") + 1
    assert json.loads(json.dumps(report.as_dict()))["accepted"] is True


STOPPED = [
    ("syntax", "class AEnv(:\n", "parse", "SyntaxError", 1),
    ("no class", "x = 1\n", "parse", "no class whose name ends in Env", None),
    ("body raises", environment(top="1 / 0"), "load", "ZeroDivisionError", 1),
    ("raises on garbage", environment(step='return str(int(action[7:-1])), 0.0, False, False, {}'), "contract",
     "ValueError", 12),
    ("bool reward", environment(step='return "x", True, False, False, {}'), "contract", "not bool", None),
    ("raises on long text", environment(step='assert len(action) < 1000\nreturn "x", 0.0, False, False, {}'), "contract",
     "AssertionError", 12),
    ("unseeded generator", environment(reset='return f"{random.Random().random()}", {}'), "determinism",
     "different replies in two processes at turn 0", None),
    ("unseeded reward", environment(reset='return f"{seed}", {}',
     step='return "x", random.SystemRandom().random(), False, False, {}'), "determinism", "at turn 1", None),
    ("clock", environment(reset='import time\nreturn f"{time.time_ns()}", {}'), "determinism", "different", None),
    ("one instance", environment(), "determinism", "5 different seeds give the same first observation", None),
    ("deaf", environment(reset='return f"begin {seed}", {}'), "interactivity", "never lead to different observations", None),
    ("one shot", environment(reset='return f"begin {seed}", {}', step='return action[:99] + ".", 0.0, True, False, {}'),
     "interactivity", "every first action ends the episode", None),
    ("too easy", environment(reset='return f"Say \\\\boxed{{heads}} or \\\\boxed{{tails}} {seed}", {}',
     step='return "so: " + action[:50], 1.0, self.turn > 1, False, {}'), "not-guessable", "a random player wins 100%", None),
    ("wrong solution", GUESS.replace("{self.number}}}", "{self.number + 1}}}"), "solvable", "wins on none of 3", None),
]  # fmt: skip


@pytest.mark.parametrize("case", STOPPED, ids=[case[0] for case in STOPPED])
def test_a_gate_stops_what_it_is_for(sandbox: Sandbox, case: tuple[str, str, str, str, int | None]) -> None:
    _, source, stage, message, line = case
    report = sandbox.examine(source)
    assert not report.accepted
    assert report.failed_stage == stage, report.as_dict()
    failed = report.stages[STAGES.index(stage)]
    assert (failed.stage, failed.outcome, failed.line) == (stage, "failed", line), failed
    assert message in failed.message
    found = outcomes(report)
    place = STAGES.index(stage)
    assert [found[name] for name in STAGES[:place]] == ["passed"] * place
    assert [found[name] for name in STAGES[place + 1 :]] == ["skipped"] * (len(STAGES) - place - 1)


def test_a_game_without_solution_is_unverifiable_and_accepted(sandbox: Sandbox) -> None:
    report = sandbox.examine(GUESS[: GUESS.index("    def solution")])
    assert report.accepted
    assert outcomes(report)["solvable"] == "unverifiable"


def test_a_solution_without_boxes_is_replayed_boxed(sandbox: Sandbox) -> None:
    report = sandbox.examine(GUESS.replace('[f"\\\\boxed{{{self.number}}}"]', "str(self.number)"))
    assert report.accepted
    assert report.measures["solved_frac"] == 1.0


def test_an_observation_that_shows_the_answer_is_measured(sandbox: Sandbox) -> None:
    report = sandbox.examine(GUESS.replace("guess a number", "guess {self.number} or a number"))
    assert report.measures["observation_shows_answer"] == 1.0


def test_hidden_dependence_on_other_episodes_is_found_or_harmless(sandbox: Sandbox) -> None:
    source = environment(top="import builtins\nbuiltins.count = getattr(builtins, 'count', 0)",
                         reset="import builtins\nbuiltins.count += 1\nreturn f'{seed} {builtins.count}', {}")  # fmt: skip
    assert sandbox.examine(source).failed_stage == "determinism"


def test_examining_a_small_program_costs_few_processes_and_messages(sandbox: Sandbox) -> None:
    """Wall time depends on the machine's load; the work does not. Alone on two cores this is about 0.1 s."""
    before = sandbox.statistics()
    sandbox.examine(GUESS)
    after = sandbox.statistics()
    assert after["workers_started"] - before["workers_started"] == 3
    assert after["frames"] - before["frames"] < 150


def test_examining_leaves_no_worker(sandbox: Sandbox) -> None:
    before = sandbox.statistics()["workers"]
    sandbox.examine(GUESS)
    sandbox.examine(environment(top="1 / 0"))
    assert sandbox.statistics()["workers"] == before


def test_unknown_kinds_and_no_seeds_are_the_callers_error(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="kind"):
        sandbox.examine(GUESS, kind="poem")
    with pytest.raises(ValueError, match="seed"):
        sandbox.examine(GUESS, seeds=())


def test_the_random_player_reads_options_and_fills_placeholders() -> None:
    generator = random.Random(0)
    assert options_of(r"say \boxed{up} or \boxed{down} or \boxed{up}") == ["up", "down"]
    assert {random_action(r"\boxed{up} \boxed{down}", generator) for _ in range(50)} == {r"\boxed{up}", r"\boxed{down}"}
    assert {random_action(r"\boxed{A} \boxed{B}", generator) for _ in range(50)} == {r"\boxed{A}", r"\boxed{B}"}
    filled = {random_action(r"Reply \boxed{N}", generator)[7:-1] for _ in range(300)}
    assert {text for text in filled if text.isdigit()} <= {str(number) for number in range(21)}
    assert {text for text in filled if not text.isdigit()} == {"Reply", "N"}
    words = {random_action(r"red \boxed{move <colour>}", generator)[7:-1] for _ in range(300)}
    assert "move red" in words
    assert "move 7" in words
    numbers = {int(random_action("no option", generator)[7:-1]) for _ in range(2000)}
    assert min(numbers) == 0
    assert max(numbers) == 100


def test_the_guess_rule_says_how_many_seeds_and_how_many_wins(sandbox: Sandbox) -> None:
    easy = next(case[1] for case in STOPPED if case[0] == "too easy")
    refused = sandbox.examine(easy, guess=GuessRule(seeds=5, largest_rate=0.99))
    assert (
        "a random player wins 100% of 5 seeds, more than 99%" in refused.stages[STAGES.index("not-guessable")].message
    )
    allowed = sandbox.examine(easy, guess=GuessRule(seeds=5, largest_rate=1.0))
    assert outcomes(allowed)["not-guessable"] == "passed"
