"""An honest program plays as it would outside, and its episodes do not feel each other."""

from __future__ import annotations

import random
import threading

import pytest

from sandbox import EnvironmentFault, EpisodeHandle, HostError, Limits, Opened, Sandbox, Stepped
from sandbox.inside.modules import flavour_of
from tests.sandbox.conftest import fault_of, open_one, step_one
from tests.sandbox.programs import GLOBAL_NUMPY, GLOBAL_RANDOM, GUESS, MODULE_STATE, environment


def play(box: Sandbox, episode: EpisodeHandle, turns: int) -> list[str]:
    observations = []
    for _ in range(turns):
        answer = step_one(box, episode)
        assert isinstance(answer, Stepped)
        observations.append(answer.observation)
    return observations


def test_a_game_is_played_to_its_win(sandbox: Sandbox) -> None:
    number = random.Random(3).randint(1, 1000)
    environment_ = sandbox.load(GUESS)
    assert environment_.class_name == "GuessEnv"
    (opened,) = sandbox.reset_many([(environment_, 3, 10)])
    assert isinstance(opened, Opened)
    assert opened.observation.startswith("Game ")
    low = step_one(sandbox, opened.episode, r"\boxed{0}")
    assert low == Stepped("The number is higher than 0. Reply \\boxed{N}.", 0.0, False, False, {"turn": 1.0})
    won = step_one(sandbox, opened.episode, f"\\boxed{{{number}}}")
    assert won == Stepped("Correct.", 1.0, True, False, {"turn": 2.0})
    with pytest.raises(HostError, match="is over"):
        step_one(sandbox, opened.episode, "more")


def test_max_turns_reaches_the_constructor(sandbox: Sandbox) -> None:
    episode = open_one(sandbox, GUESS, max_turns=2)
    first, second = step_one(sandbox, episode, "x"), step_one(sandbox, episode, "x")
    assert isinstance(first, Stepped)
    assert isinstance(second, Stepped)
    assert (first.truncated, second.truncated) == (False, True)


def test_answers_keep_the_order_of_the_requests(sandbox: Sandbox) -> None:
    one, two = sandbox.load(GUESS), sandbox.load(GUESS)
    opened = sandbox.reset_many([(one, 1, 9), (two, 2, 9), (one, 3, 9), (two, 4, 9)])
    assert all(isinstance(each, Opened) for each in opened)
    requests = [(each.episode, f"\\boxed{{{-index}}}" if index % 2 else f"\\boxed{{{2000 + index}}}")
                for index, each in enumerate(opened) if isinstance(each, Opened)]  # fmt: skip
    texts = [each.observation for each in sandbox.step_many(requests) if isinstance(each, Stepped)]
    assert [text.split(".")[0] for text in texts] == [
        "The number is lower than 2000",
        "Not a number",
        "The number is lower than 2002",
        "Not a number",
    ]


@pytest.mark.parametrize("source", [GLOBAL_RANDOM, GLOBAL_NUMPY, MODULE_STATE], ids=["random", "numpy", "module"])
def test_interleaved_episodes_see_what_each_sees_alone(sandbox: Sandbox, source: str) -> None:
    alone = []
    for seed in (5, 6):
        handle = sandbox.load(source)
        (opened,) = sandbox.reset_many([(handle, seed, 9)])
        assert isinstance(opened, Opened)
        alone.append([opened.observation, *play(sandbox, opened.episode, 4)])
        handle.close()
    handle = sandbox.load(source)
    both = sandbox.reset_many([(handle, 5, 9), (handle, 6, 9)])
    seen = [[each.observation] for each in both if isinstance(each, Opened)]
    for _ in range(4):
        answers = sandbox.step_many([(each.episode, "go") for each in both if isinstance(each, Opened)])
        for place, answer in enumerate(answers):
            assert isinstance(answer, Stepped)
            seen[place].append(answer.observation)
    assert seen == alone


def test_global_draws_follow_the_episode_seed(sandbox: Sandbox) -> None:
    opened = sandbox.reset_many([(sandbox.load(GLOBAL_RANDOM), seed, 9) for seed in (5, 5, 6)])
    first, second, third = (each.observation for each in opened if isinstance(each, Opened))
    assert first == second == f"start {random.Random(5).random()}"
    assert third != first


def test_set_order_agrees_between_workers(sandbox: Sandbox) -> None:
    source = environment(reset='return " ".join({f"word{i}" for i in range(30)}), {}')
    texts = set()
    for _ in range(3):
        (opened,) = sandbox.reset_many([(sandbox.load(source), 1, 9)])
        assert isinstance(opened, Opened)
        texts.add(opened.observation)
    assert len(texts) == 1


def test_common_names_are_provided_without_import(sandbox: Sandbox) -> None:
    names = (
        "itertools, math, random, re, json, collections, functools, string, copy, heapq, operator, statistics, deque, "
        "defaultdict, Counter, OrderedDict, namedtuple, combinations, permutations, product, chain, accumulate, reduce, "
        "lru_cache, deepcopy, heappush, heappop, List, Dict, Tuple, Optional, Any, Callable, Set, Union"
    )
    episode = open_one(sandbox, environment(step=f"return str(len(({names}))), 0.0, False, False, {{}}"))
    answer = step_one(sandbox, episode)
    assert isinstance(answer, Stepped)
    assert answer.observation == str(names.count(",") + 1)


def test_numpy_is_provided_and_its_numbers_are_numbers(sandbox: Sandbox) -> None:
    step = 'return str(np.arange(6).reshape(2, 3) @ np.ones(3)), np.float64(0.5), False, False, {"n": np.int64(3)}'
    assert step_one(sandbox, open_one(sandbox, environment(step=step))) == Stepped(
        "[ 3. 12.]", 0.5, False, False, {"n": 3.0}
    )


def test_parse_and_verify_compare_mathematics_inside(sandbox: Sandbox) -> None:
    step = r'return str(verify(parse(r"$\frac{1}{2}$"), parse(action))), 0.0, False, False, {}'
    handle = sandbox.load(environment(step=step))
    for action, same in (
        (r"\boxed{0.5}", "True"),
        (r"\boxed{\frac{2}{4}}", "True"),
        (r"\boxed{0.6}", "False"),
        ("", "False"),
    ):
        (opened,) = sandbox.reset_many([(handle, 1, 9)])
        assert isinstance(opened, Opened)
        answer = step_one(sandbox, opened.episode, action)
        assert isinstance(answer, Stepped), str(answer)
        assert (action, answer.observation) == (action, same)


def test_the_cheapest_zygote_that_serves_a_program_is_chosen() -> None:
    for source, flavour in (
        (GUESS, "plain"),
        ("def _parse(x): ...\nself._parse(action)\nself.verify(x)\ninput.append(1)", "plain"),
        ("import numpy as np", "numpy"),
        ("x = np.zeros(3)", "numpy"),
        ("verify(parse(a), parse(b))", "math"),
        ("list(map(parse, texts))", "math"),
        ("from math_verify import parse as read", "math"),
        ("import sympy", "math"),
    ):
        assert flavour_of(source) == flavour, source


@pytest.mark.parametrize(
    "name",
    ["abc", "bisect", "cmath", "dataclasses", "datetime", "decimal", "enum", "fractions", "hashlib", "inspect", "numbers",
     "textwrap", "time", "typing", "uuid", "warnings", "string", "traceback", "io", "threading"],
)  # fmt: skip
def test_computing_modules_can_be_imported_when_playing(sandbox: Sandbox, name: str) -> None:
    episode = open_one(sandbox, environment(step=f"import {name}\nreturn {name}.__name__, 0.0, False, False, {{}}"))
    answer = step_one(sandbox, episode)
    assert isinstance(answer, Stepped)
    assert answer.observation == name


@pytest.mark.parametrize("name", ["socket", "subprocess", "ctypes", "requests", "multiprocessing", "sandbox.host"])
def test_other_modules_are_a_clear_import_error(sandbox: Sandbox, name: str) -> None:
    fault = fault_of(sandbox, environment(step=f'import {name}\nreturn "x", 0.0, False, False, {{}}'))
    assert fault.kind == "exception"
    assert fault.message.startswith(f"ModuleNotFoundError: No module named '{name}'")


def test_dates_and_unicode_need_no_files(sandbox: Sandbox) -> None:
    step = (
        "import datetime, unicodedata\n"
        'day = datetime.datetime.strptime("2026-03-01", "%Y-%m-%d")\n'
        "return f\"{day:%A} {unicodedata.name(chr(9731))} {chr(233).encode(chr(117) + 'tf-16')!r}\", 0.0, False, False, {}"
    )
    answer = step_one(sandbox, open_one(sandbox, environment(step=step)))
    assert isinstance(answer, Stepped), str(answer)
    assert answer.observation.startswith("Sunday SNOWMAN")


def test_printed_text_is_captured_and_capped() -> None:
    with Sandbox(Limits(stdout_bytes=100)) as box:
        episode = open_one(box, environment(step='print("thinking", action)\nreturn "x", 0.0, False, False, {}'))
        answer = step_one(box, episode, "hard")
        assert isinstance(answer, Stepped)
        assert answer.stdout == "thinking hard\n"
        loud = step_one(box, open_one(box, environment(step='print("é" * 10**6)\nreturn "x", 0.0, False, False, {}')))
        assert isinstance(loud, Stepped)
        assert loud.stdout.startswith("éééé")
        assert len(loud.stdout.encode()) <= 102


def test_only_the_numbers_of_info_survive(sandbox: Sandbox) -> None:
    info = '{"n": 3, "x": 0.5, "won": True, "text": "no", "list": [1], "nan": float("nan"), 7: 1, "big": 10**400}'
    answer = step_one(sandbox, open_one(sandbox, environment(step=f'return "x", 1, False, False, {info}')))
    assert answer == Stepped("x", 1.0, False, False, {"n": 3.0, "x": 0.5, "won": 1.0})


def test_solution_is_read_after_the_reset(sandbox: Sandbox) -> None:
    handle = sandbox.load(GUESS)
    assert sandbox.solution(handle, 3, 10) == [f"\\boxed{{{random.Random(3).randint(1, 1000)}}}"]
    assert sandbox.solution(sandbox.load(environment()), 3, 10) is None
    one_string = environment() + '    def solution(self):\n        return "left"\n'
    assert sandbox.solution(sandbox.load(one_string), 3, 10) == ["left"]
    for broken in ("1 / 0", "{}", "[]", "[None]", "['x'] * 5000"):
        source = environment() + f"    def solution(self):\n        return {broken}\n"
        assert sandbox.solution(sandbox.load(source), 3, 10) is None, broken


def test_many_threads_play_at_once(sandbox: Sandbox) -> None:
    seen: dict[int, str] = {}

    def one(seed: int) -> None:
        episode = open_one(sandbox, GUESS, seed=seed)
        answer = step_one(sandbox, episode, f"\\boxed{{{random.Random(seed).randint(1, 1000)}}}")
        assert isinstance(answer, Stepped)
        seen[seed] = answer.observation

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == dict.fromkeys(range(12), "Correct.")


def test_ended_episodes_are_forgotten_and_closed_handles_refuse(sandbox: Sandbox) -> None:
    handle = sandbox.load(GUESS)
    (opened,) = sandbox.reset_many([(handle, 1, 9)])
    assert isinstance(opened, Opened)
    sandbox.end_many([opened.episode, opened.episode])
    with pytest.raises(HostError, match="never opened"):
        step_one(sandbox, opened.episode)
    handle.close()
    handle.close()
    with pytest.raises(HostError, match="closed"):
        sandbox.reset_many([(handle, 1, 9)])


def test_calls_that_make_no_sense_are_the_callers_error(sandbox: Sandbox) -> None:
    handle = sandbox.load(GUESS)
    for seed, turns in ((-1, 9), (2**63, 9), (1, 0), (True, 9)):
        with pytest.raises(HostError):
            sandbox.reset_many([(handle, seed, turns)])
    episode = open_one(sandbox, GUESS)
    with pytest.raises(HostError, match="in flight"):
        sandbox.step_many([(episode, "a"), (episode, "b")])
    with pytest.raises(HostError, match="must be str"):
        sandbox.step_many([(episode, 3)])  # type: ignore[list-item]
    answer = step_one(sandbox, episode, "lone \ud800 surrogate")
    assert not isinstance(answer, EnvironmentFault)
    with pytest.raises(ValueError, match="minimum_tier"):
        Sandbox(minimum_tier="best effort")
    with pytest.raises(ValueError, match="step_hard_s"):
        Limits(step_soft_s=5, step_hard_s=4)
