"""The gates `parse` to `solvable` of spec 01, section 4. Programs run in fresh workers, verdicts are computed here.

In order; the first failure names the stage and the rest is skipped. `EnvironmentFault` fails the stage it happens in;
`HostError` and `SandboxUnavailable` pass through: a broken machine says nothing about a program.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from sandbox.errors import EnvironmentFault
from sandbox.host import SandboxHost
from sandbox.limits import GuessRule
from sandbox.players import options_of, random_action
from sandbox.results import EnvironmentHandle, Opened, Report, StageOutcome, StageResult, Stepped

STAGES: tuple[str, ...] = ("parse", "load", "contract", "determinism", "interactivity", "not-guessable", "solvable")
KINDS: tuple[str, ...] = ("game",)
DEFAULT_SEEDS: tuple[int, ...] = (42, 123, 7)
TURNS = 25
_FIRST_GUESS_SEED = 1_000
_CONTRACT_SEEDS = (42, 123)
_PROBES = (r"\boxed{1}", r"\boxed{test}", r"\boxed{42}")
_GARBAGE = (
    "", " \n\t", r"\boxed{}", r"\boxed{", "}{)(*&^%$", r"\boxed{" + "9" * 400 + "}", "x" * 20_000, r"\boxed{-1}",
    r"\boxed{0.5}", r"\boxed{\frac{1}{2}}", "你好 \N{GRINNING FACE} \u202e\u0301", r"\boxed{٣}", r"\boxed{None}",
)  # fmt: skip
_WIDEST_EVIDENCE = 300


@dataclass
class _Failure(Exception):
    message: str
    line: int | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Passed:
    outcome: StageResult = "passed"
    message: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    measures: dict[str, float] = field(default_factory=dict)


@dataclass
class _Play:
    """One episode as it went: observations from the reset on, actions, the last step."""

    seed: int
    observations: list[str]
    actions: list[str] = field(default_factory=list)
    replies: list[Stepped] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return bool(self.replies) and (self.replies[-1].terminated or self.replies[-1].truncated)

    @property
    def won(self) -> bool:
        return bool(self.replies) and self.replies[-1].terminated and self.replies[-1].reward > 0


class Examination:
    """One run of the gates over one program."""

    def __init__(self, host: SandboxHost, source: str, seeds: Sequence[int], guess: GuessRule) -> None:
        """`seeds`: at least one; used by determinism, interactivity and solvable."""
        self._guess = guess
        self._host = host
        self._source = source
        self._seeds = list(seeds)
        self._stack = AsyncExitStack()
        self._main: EnvironmentHandle | None = None
        self.class_name: str | None = None

    async def close(self) -> None:
        """End the workers of this examination."""
        await self._stack.aclose()

    async def _fresh(self) -> EnvironmentHandle:
        handle = await self._host.load(self._source)
        self._stack.push_async_callback(self._host.close_environment, handle)
        return handle

    # --- playing ----------------------------------------------------------------------------------------------------

    async def _open(self, environment: EnvironmentHandle, seeds: Sequence[int]) -> list[tuple[Opened, _Play]]:
        answers = await self._host.reset_many([(environment, seed, TURNS) for seed in seeds])
        opened = []
        for seed, answer in zip(seeds, answers, strict=True):
            if isinstance(answer, EnvironmentFault):
                raise _of_fault(answer, f"reset({seed})")
            opened.append((answer, _Play(seed, [answer.observation])))
        return opened

    async def _play(
        self,
        environment: EnvironmentHandle,
        seeds: Sequence[int],
        choose: Callable[[int, _Play], str | None],
        turns: int,
    ) -> list[_Play]:
        """Play all seeds in lockstep; `choose(index, play)` gives the next action or None to stop that episode."""
        opened = await self._open(environment, seeds)
        # What a program shows or proposes decides how long an action grows; a player's has an end.
        longest = self._host.limits.action_chars
        for _ in range(turns):
            moves = [
                (episode.episode, action[:longest], play)
                for index, (episode, play) in enumerate(opened)
                if not play.over and (action := choose(index, play)) is not None
            ]
            if not moves:
                break
            answers = await self._host.step_many([(handle, action) for handle, action, _ in moves])
            for (_, action, play), answer in zip(moves, answers, strict=True):
                play.actions.append(action)
                if isinstance(answer, EnvironmentFault):
                    raise _of_fault(answer, f"seed {play.seed}, turn {len(play.actions)}, action {action[:60]!r}")
                play.replies.append(answer)
                play.observations.append(answer.observation)
        await self._host.end_many([episode.episode for episode, _ in opened])
        return [play for _, play in opened]

    # --- stages -----------------------------------------------------------------------------------------------------

    async def load(self) -> dict[str, float]:
        """Parse and load; raises `EnvironmentFault`. Returns the measures of the source."""
        self._main = await self._fresh()
        self.class_name = self._main.class_name
        return await self._host.measure(self._main)

    @property
    def main(self) -> EnvironmentHandle:
        """The worker of every stage but determinism."""
        if self._main is None:
            raise RuntimeError("load() comes first")
        return self._main

    async def contract(self) -> _Passed:
        """Resets honour the types; probes and garbage are survived, each from a fresh episode and in a row."""
        await self._play(self.main, _CONTRACT_SEEDS, lambda _, play: _nth(_PROBES, play), len(_PROBES))
        actions = (*_PROBES, *_GARBAGE)
        await self._play(
            self.main, [_CONTRACT_SEEDS[0]] * len(actions), lambda i, p: None if p.actions else actions[i], 1
        )
        return _Passed(measures={"probes": float(len(actions))})

    async def determinism(self) -> _Passed:
        """Same seed and actions agree in two fresh processes, one interleaving the episodes, one not."""
        seeds = list(dict.fromkeys([*self._seeds, *_CONTRACT_SEEDS, 1, 2, 3]))[: max(5, len(self._seeds))]
        first, second = await self._fresh(), await self._fresh()
        choose = _random_choices(seeds)
        plays = await self._play(first, seeds, choose, 8)
        for play in reversed(plays):
            script = play.actions
            (again,) = await self._play(second, [play.seed], lambda _, p, s=script: _nth(s, p), len(script))  # type: ignore[misc]
            _compare(play, again)
        if len(seeds) > 1 and len({play.observations[0] for play in plays}) == 1:
            raise _Failure(
                f"{len(seeds)} different seeds give the same first observation",
                evidence={"observation": plays[0].observations[0][:_WIDEST_EVIDENCE], "seeds": seeds},
            )
        return _Passed(measures={"determinism": 1.0})

    async def interactivity(self) -> _Passed:
        """Different actions lead to different observations, and not every first action ends the episode."""
        ended: list[bool] = []
        differing = False
        for seed in self._seeds:
            scripts = [[probe] * 3 for probe in _PROBES]
            opened = await self._play(self.main, [seed] * len(scripts), lambda i, p, s=scripts: _nth(s[i], p), 3)  # type: ignore[misc]
            choose = _random_choices([seed, seed + 1, seed + 2])
            opened += await self._play(self.main, [seed] * 3, choose, 3)
            ended += [play.replies[0].terminated or play.replies[0].truncated for play in opened]
            differing = differing or len({tuple(play.observations) for play in opened}) > 1
        if all(ended):
            raise _Failure("every first action ends the episode", evidence={"episodes": len(ended)})
        if not differing:
            raise _Failure("different actions never lead to different observations", evidence={"episodes": len(ended)})
        return _Passed(measures={"first_action_ends_frac": sum(ended) / len(ended)})

    async def not_guessable(self) -> _Passed:
        """The random player wins at most the share of seeds the rule allows."""
        seeds = range(_FIRST_GUESS_SEED, _FIRST_GUESS_SEED + self._guess.seeds)
        plays = await self._play(self.main, seeds, _random_choices(seeds), TURNS)
        rate = sum(play.won for play in plays) / len(plays)
        turns = sum(len(play.actions) for play in plays) / len(plays)
        shown = [len(options_of(text)) for play in plays for text in play.observations[: max(1, len(play.actions))]]
        measures = {"guess_rate": rate, "turns": turns, "branching": sum(shown) / len(shown)}
        if rate > self._guess.largest_rate:
            won = next(play for play in plays if play.won)
            raise _Failure(
                f"a random player wins {rate:.0%} of {len(plays)} seeds, more than {self._guess.largest_rate:.0%}",
                evidence={**measures, "seed": won.seed, "actions": [text[:60] for text in won.actions]},
            )
        return _Passed(measures=measures)

    async def solvable(self) -> _Passed:
        """Replaying `solution()` wins on at least one of three seeds; without usable actions it is unverifiable."""
        seeds = (self._seeds + [seed for seed in (1, 2, 3) if seed not in self._seeds])[:3]
        found = [(seed, await self._host.solution(self.main, seed, TURNS)) for seed in seeds]
        usable = [(seed, actions) for seed, actions in found if actions]
        if not usable:
            return _Passed("unverifiable", "solution() gives no replayable actions")
        won = shown = 0
        for seed, actions in usable:
            scripts = [actions, [_boxed(action) for action in actions]]
            plays = await self._play(self.main, [seed, seed], lambda i, p, s=scripts: _nth(s[i], p), TURNS)  # type: ignore[misc]
            won += any(play.won for play in plays)
            shown += _shows(plays[0].observations[0], actions)
        measures = {"solved_frac": won / len(usable), "observation_shows_answer": shown / len(usable)}
        if won == 0:
            evidence = {"seed": usable[0][0], "actions": [text[:60] for text in usable[0][1][:10]]}
            raise _Failure(f"replaying solution() wins on none of {len(usable)} seeds", evidence=evidence)
        return _Passed(measures=measures)


async def examine(host: SandboxHost, source: str, kind: str, seeds: Sequence[int], guess: GuessRule) -> Report:
    """Run all gates over one program; raises `ValueError` for an unknown kind or no seeds, `HostError` for the machine."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if not seeds:
        raise ValueError("examine needs at least one seed")
    examination = Examination(host, source, seeds, guess)
    try:
        return await _run(host, examination)
    finally:
        await examination.close()


async def _run(host: SandboxHost, examination: Examination) -> Report:
    outcomes: list[StageOutcome] = []
    started = time.perf_counter()
    try:
        measures = await examination.load()
    except EnvironmentFault as fault:
        elapsed = time.perf_counter() - started
        failed = "parse" if fault.stage == "parse" else "load"
        if failed == "load":
            outcomes.append(StageOutcome("parse", "passed"))
        outcomes.append(
            StageOutcome(failed, "failed", f"{fault.kind}: {fault.message}", fault.line, elapsed, _evidence(fault))
        )
        return _report(host, examination, outcomes)
    outcomes.append(StageOutcome("parse", "passed", measures=measures))
    outcomes.append(StageOutcome("load", "passed", elapsed_s=time.perf_counter() - started))
    stages: list[tuple[str, Callable[[], Awaitable[_Passed]]]] = [
        ("contract", examination.contract),
        ("determinism", examination.determinism),
        ("interactivity", examination.interactivity),
        ("not-guessable", examination.not_guessable),
        ("solvable", examination.solvable),
    ]
    for name, stage in stages:
        started = time.perf_counter()
        try:
            passed = await stage()
        except (_Failure, EnvironmentFault) as error:
            failure = error if isinstance(error, _Failure) else _of_fault(error, "load")
            elapsed = time.perf_counter() - started
            outcomes.append(StageOutcome(name, "failed", failure.message, failure.line, elapsed, failure.evidence))
            break
        elapsed = time.perf_counter() - started
        outcomes.append(
            StageOutcome(name, passed.outcome, passed.message, None, elapsed, passed.evidence, passed.measures)
        )
    return _report(host, examination, outcomes)


def _report(host: SandboxHost, examination: Examination, outcomes: list[StageOutcome]) -> Report:
    failed = next((outcome.stage for outcome in outcomes if outcome.outcome == "failed"), None)
    done = {outcome.stage for outcome in outcomes}
    outcomes += [StageOutcome(name, "skipped") for name in STAGES if name not in done]
    measures = {name: value for outcome in outcomes for name, value in outcome.measures.items()}
    return Report(failed is None, failed, tuple(outcomes), examination.class_name, measures, host.tier)


def _evidence(fault: EnvironmentFault) -> dict[str, Any]:
    parts = {"kind": fault.kind, "traceback": fault.traceback_text, "stdout": fault.stdout}
    return {name: text for name, text in parts.items() if text}


def _of_fault(fault: EnvironmentFault, where: str) -> _Failure:
    return _Failure(f"{fault.kind} in {where}: {fault.message}", fault.line, _evidence(fault))


def _nth(script: Sequence[str], play: _Play) -> str | None:
    turn = len(play.actions)
    return script[turn] if turn < len(script) else None


def _random_choices(seeds: Sequence[int]) -> Callable[[int, _Play], str]:
    generators = [random.Random(f"player-{seed}") for seed in seeds]  # noqa: S311 - a game player, not a secret
    return lambda index, play: random_action(play.observations[-1], generators[index])


def _boxed(action: str) -> str:
    return action if r"\boxed" in action else f"\\boxed{{{action}}}"


def _shows(observation: str, actions: Sequence[str]) -> bool:
    """Whether the last solution action stands in the first observation as a whole word (two characters at least)."""
    inner = re.sub(r"^\\boxed\{(.*)\}$", r"\1", actions[-1].strip())
    # By hand: a pattern made of a program's text would stay, compiled, in the host's cache of patterns.
    start = observation.find(inner) if len(inner) > 1 else -1
    while start >= 0:
        around = observation[max(0, start - 1) : start], observation[start + len(inner) : start + len(inner) + 1]
        if not any(character.isalnum() or character == "_" for character in around):
            return True
        start = observation.find(inner, start + 1)
    return False


def _compare(first: _Play, second: _Play) -> None:
    """Raise at the first difference between two plays of the same seed and actions."""
    pairs = [(None, None), *zip(first.replies, second.replies, strict=False)]
    for turn, (one, two) in enumerate(pairs):
        texts = (first.observations[turn], second.observations[turn])
        same = texts[0] == texts[1] and (
            one is None
            or two is None
            or (one.reward, one.terminated, one.truncated) == (two.reward, two.terminated, two.truncated)
        )
        if not same:
            evidence = {
                "seed": first.seed,
                "turn": turn,
                "first": _brief(texts[0], one),
                "second": _brief(texts[1], two),
            }
            raise _Failure(
                f"seed {first.seed} gives different replies in two processes at turn {turn}", evidence=evidence
            )
    if len(first.replies) != len(second.replies):
        raise _Failure(f"seed {first.seed} ends at different turns in two processes", evidence={"seed": first.seed})


def _brief(text: str, reply: Stepped | None) -> dict[str, Any]:
    brief: dict[str, Any] = {"observation": text[:_WIDEST_EVIDENCE]}
    if reply is not None:
        brief |= {"reward": reply.reward, "terminated": reply.terminated, "truncated": reply.truncated}
    return brief
