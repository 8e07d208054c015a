"""Every kind of bad program is a typed failure with stage, message and line, and harms nobody else."""

from __future__ import annotations

import time

import pytest

from sandbox import EnvironmentFault, Limits, Sandbox, Stepped
from tests.sandbox.conftest import fault_of, open_one, step_one
from tests.sandbox.programs import GUESS, environment

TWO = environment() + environment().replace("MadeEnv", "OtherEnv")

# name, source, kind, stage, part of the message, line
LOADING = [
    ("empty", "", "contract", "parse", "empty", None),
    ("blank", " \n\t\n", "contract", "parse", "empty", None),
    ("10 MB", "#" * 10_000_000, "contract", "parse", "10000000 bytes", None),
    ("not UTF-8", "x = '\udcff'", "contract", "parse", "not UTF-8", None),
    ("full of NULs", "\0" * 100, "contract", "parse", "NUL", None),
    ("syntax error", "x = 1\ndef f(:\n", "exception", "parse", "SyntaxError", 2),
    ("bad indentation", "def f():\nreturn 1\n", "exception", "parse", "IndentationError", 2),
    ("no class", "x = 1\n", "contract", "parse", "no class whose name ends in Env", None),
    ("wrong name", "class Game:\n    pass\n", "contract", "parse", "no class whose name ends in Env", None),
    ("several classes", TWO, "contract", "parse", "2 environment classes (MadeEnv, OtherEnv)", 14),
    ("deep nesting", "x = " + "(" * 50_000 + ")" * 50_000, "exception", "parse", "too many nested parentheses", 1),
    ("long chain", "x = 1" + "+1" * 20_000, "contract", "parse", "RecursionError", None),
    ("body raises", "class AEnv: pass\n1 / 0\n", "exception", "load", "ZeroDivisionError: division by zero", 2),
    ("body exits", "import sys\nclass AEnv: pass\nsys.exit(3)\n", "exit", "load", "SystemExit: 3", 3),
    ("body ends the process", "import os\nclass AEnv: pass\nos._exit(3)\n", "exit", "load", "code 3", None),
    ("no step", "class AEnv:\n    def reset(self, seed=None): pass\n", "contract", "load", "no method step()", None),
    ("class replaced", environment() + "\nMadeEnv = 3\n", "contract", "load", "MadeEnv is not a class", None),
    ("body hangs", "class AEnv: pass\nwhile True: pass\n", "timeout", "load", "longer than 1 s", 2),
]


@pytest.mark.parametrize("case", LOADING, ids=[case[0] for case in LOADING])
def test_a_program_that_does_not_load_says_why(
    quick: Sandbox, case: tuple[str, str, str, str, str, int | None]
) -> None:
    _, source, kind, stage, message, line = case
    with pytest.raises(EnvironmentFault) as caught:
        quick.load(source)
    fault = caught.value
    assert (fault.kind, fault.stage, fault.line) == (kind, stage, line), str(fault)
    assert message in fault.message


# name, program, kind, stage, part of the message, line
PLAYING = [
    ("needs arguments", environment().replace("max_turns=10, **kwargs", "size"), "exception", "reset", "TypeError", None),
    ("constructor raises", environment(init="1 / 0"), "exception", "reset", "ZeroDivisionError", 5),
    ("reset takes no seed", environment().replace("seed=None", ""), "exception", "reset", "TypeError", None),
    ("reset returns text", environment(reset='return "begin"'), "contract", "reset", "not str", None),
    ("reset returns three", environment(reset='return "a", {}, 1'), "contract", "reset", "a tuple of 3", None),
    ("reset returns a list", environment(reset='return ["a", {}]'), "contract", "reset", "not list", None),
    ("observation None", environment(reset="return None, {}"), "contract", "reset", "not NoneType", None),
    ("observation bytes", environment(reset='return b"x", {}'), "contract", "reset", "not bytes", None),
    ("observation empty", environment(reset='return "", {}'), "contract", "reset", "empty", None),
    ("observation blank", environment(reset='return " \\n", {}'), "contract", "reset", "empty", None),
    ("escape", environment(reset='return "a\\x1b[2J", {}'), "contract", "reset", "U+001B at 1", None),
    ("NUL", environment(reset='return "a\\0b", {}'), "contract", "reset", "U+0000", None),
    ("lone surrogate", environment(reset='return "\\ud800", {}'), "contract", "reset", "U+D800", None),
    ("subclass of str", environment(top="class T(str): pass", reset='return T("x"), {}'), "contract", "reset", "not T", None),
    ("info None", environment(reset='return "x", None'), "contract", "reset", "info must be a dict", None),
    ("step raises", environment(step="\nreturn [][3]"), "exception", "step", "IndexError", 12),
    ("step exits", environment(step="raise SystemExit"), "exit", "step", "SystemExit", 12),
    ("step returns four", environment(step='return "x", 0.0, False, {}'), "contract", "step", "a tuple of 4", None),
    ("step returns None", environment(step="return None"), "contract", "step", "not NoneType", None),
    ("reward bool", environment(step='return "x", True, False, False, {}'), "contract", "step", "not bool", None),
    ("reward text", environment(step='return "x", "1", False, False, {}'), "contract", "step", "not str", None),
    ("reward None", environment(step='return "x", None, False, False, {}'), "contract", "step", "not NoneType", None),
    ("reward NaN", environment(step='return "x", math.nan, False, False, {}'), "contract", "step", "nan", None),
    ("reward infinite", environment(step='return "x", -math.inf, False, False, {}'), "contract", "step", "-inf", None),
    ("reward 1e308", environment(step='return "x", 1e308, False, False, {}'), "contract", "step", "outside", None),
    ("reward 10.5", environment(step='return "x", 10.5, False, False, {}'), "contract", "step", "outside [-10, 10]", None),
    ("reward huge int", environment(step='return "x", 10**5000, False, False, {}'), "contract", "step", "bits", None),
    ("reward complex", environment(step='return "x", 1j, False, False, {}'), "contract", "step", "not complex", None),
    ("flag int", environment(step='return "x", 0.0, 1, False, {}'), "contract", "step", "terminated must be", None),
    ("flag text", environment(step='return "x", 0.0, False, "no", {}'), "contract", "step", "truncated must be", None),
    ("info list", environment(step='return "x", 0.0, False, False, []'), "contract", "step", "info must be", None),
    ("loop", environment(step="while True: pass"), "timeout", "step", "longer than 0.4 s", 12),
    ("sleep", environment(step="import time\ntime.sleep(60)"), "timeout", "step", "longer than 0.4 s", 13),
    ("regex", environment(step='re.match(r"(a+)+$", "a" * 40 + "b")'), "timeout", "step", "longer", 12),
    ("memory", environment(step="x = list(range(10**9))"), "memory", "step", "memory limit", 12),
    ("reads input", environment(step='input("? ")'), "exception", "step", "EOFError", 12),
    ("starts a thread", environment(step="import threading\nthreading.Thread(target=print).start()"), "exception", "step",
     "can't start new thread", 13),
    ("crash", environment(step="import os\nos.abort()"), "crash", "step", "signal", None),
    ("exit of the process", environment(step="import os\nos._exit(0)"), "exit", "step", "code 0", None),
    ("closes all descriptors", environment(step="import os\nos.closerange(0, 100)\nreturn 'x', 0.0, False, False, {}"),
     "crash", "step", "", None),
]  # fmt: skip


@pytest.mark.parametrize("case", PLAYING, ids=[case[0] for case in PLAYING])
def test_a_program_that_misbehaves_is_a_typed_fault(
    quick: Sandbox, case: tuple[str, str, str, str, str, int | None]
) -> None:
    _, source, kind, stage, message, line = case
    fault = fault_of(quick, source)
    assert (fault.kind, fault.stage, fault.line) == (kind, stage, line), str(fault)
    assert message in fault.message


def test_an_observation_of_200_mb_is_refused_inside(sandbox: Sandbox) -> None:
    fault = fault_of(sandbox, environment(reset='return "x" * 200_000_000, {}'))
    assert (fault.kind, fault.stage) == ("output", "reset"), str(fault)
    assert "200000000 characters" in fault.message


def test_cyclic_and_deep_info_is_dropped(quick: Sandbox) -> None:
    step = (
        "info = {'n': 1}\ninfo['self'] = info\ndeep = []\nfor _ in range(100_000): deep = [deep]\ninfo['deep'] = deep\n"
    )
    answer = step_one(quick, open_one(quick, environment(step=step + "return 'x', 0.0, False, False, info")))
    assert answer == Stepped("x", 0.0, False, False, {"n": 1.0})


def test_a_fault_carries_the_traceback_inside_the_program(quick: Sandbox) -> None:
    source = environment(step="return self.deeper()") + "    def deeper(self):\n        raise KeyError('lost')\n"
    fault = fault_of(quick, source)
    assert fault.message == "KeyError: 'lost'"
    assert fault.line == 14
    kept = [line for line in fault.traceback_text.splitlines() if set(line) - set(" ^~")]
    assert kept == [
        '  File "<environment>", line 12, in step',
        "    return self.deeper()",
        '  File "<environment>", line 14, in deeper',
        "    raise KeyError('lost')",
    ]


@pytest.mark.parametrize(
    "swallow",
    [
        "n = 0\nwhile True:\n    try:\n        try:\n            while n >= 0: n += 1\n"
        "        except BaseException: n = 1\n    except BaseException: n = 2",
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
        "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass",
        "sum(range(10**12))",
        "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0)\nwhile True: pass",
    ],
    ids=["swallows", "blocks", "ignores", "C loop", "stops the timer"],
)
def test_what_ignores_the_soft_limit_is_killed_at_the_hard_one(quick: Sandbox, swallow: str) -> None:
    started = time.monotonic()
    fault = fault_of(quick, environment(step=swallow))
    elapsed = time.monotonic() - started
    assert (fault.kind, fault.stage) == ("timeout", "step")
    assert "the worker was killed" in fault.message
    assert 1.0 <= elapsed < 3.0


def test_siblings_of_a_killed_episode_are_rebuilt_by_replay(quick: Sandbox) -> None:
    step = (
        "if action == 'hang': sum(range(10**12))\nif action == 'exit':\n    import os\n    os._exit(1)\n"
        "self.seen.append(action)\nreturn f'{self.seen} {self.rng.random()} {random.random()}', 0.0, False, False, {}"
    )
    source = environment(init="self.seen = []", reset="self.rng = random.Random(seed)\nreturn 'begin', {}", step=step)
    reference = [open_one(quick, source, seed=seed) for seed in range(4)]
    episodes = quick.reset_many([(handle, seed, 9) for handle in [quick.load(source)] for seed in range(4)])
    handles = [each.episode for each in episodes if not isinstance(each, EnvironmentFault)]
    for turn, bad in ((0, None), (1, "hang"), (2, None), (3, "exit"), (4, None)):
        expected = quick.step_many([(episode, str(turn)) for episode in reference])
        actions = [bad if bad is not None and place == turn // 2 else str(turn) for place in range(4)]
        seen = quick.step_many(list(zip(handles, actions, strict=True)))
        dead = [place for place, answer in enumerate(seen) if isinstance(answer, EnvironmentFault)]
        assert dead == [place for place in range(turn // 2 + 1 if bad else (turn + 1) // 2) if place < 2][: len(dead)]
        for place, answer in enumerate(seen):
            if isinstance(answer, EnvironmentFault):
                assert answer.kind in ("timeout", "exit")
            else:
                assert answer == expected[place]


def test_a_replay_that_differs_is_nondeterministic(quick: Sandbox) -> None:
    step = "if action == 'exit':\n    import os\n    os._exit(1)\nreturn 'x', 0.0, False, False, {}"
    source = environment(reset="import time\nreturn str(time.time_ns()), {}", step=step)
    handle = quick.load(source)
    opened = quick.reset_many([(handle, 1, 9), (handle, 2, 9)])
    first, second = (each.episode for each in opened if not isinstance(each, EnvironmentFault))
    culprit = step_one(quick, first, "exit")
    sibling = step_one(quick, second, "go")
    assert isinstance(culprit, EnvironmentFault)
    assert culprit.kind == "exit"
    assert isinstance(sibling, EnvironmentFault)
    assert sibling.kind == "nondeterministic"


def test_a_version_that_dies_leaves_the_others_alone(quick: Sandbox) -> None:
    good = open_one(quick, GUESS)
    fault_of(quick, environment(step="import os\nos.abort()"))
    assert isinstance(step_one(quick, good, r"\boxed{0}"), Stepped)


def test_limits_name_the_field_that_cannot_work() -> None:
    with pytest.raises(ValueError, match="memory_bytes"):
        Limits(memory_bytes=0)
