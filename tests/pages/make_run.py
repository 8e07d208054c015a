"""Writes a run directory like a real one, in a second and without a model: for page tests and for looking at the pages.

Every payload passes through the models of ``trainer/events.py`` and the trainer's own event log writer, so what is written here is
what a trainer could have written. Values follow a seeded generator; ``hostile=True`` puts an attack text in every free field.

    python tests/pages/make_run.py DIRECTORY [--rollouts 24] [--seed 7] [--hostile] [--resume-from N] [--unfinished]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.pages.synthetic import ATTACKS, CODE, NAMES, STAGES, hash_of, metrics_of, synthetic_config
from trainer.config import RunConfig
from trainer.eventlog import EventLog
from trainer.events import (
    CandidateJudged,
    CheckpointSaved,
    CorpusLoaded,
    DesignerRewarded,
    DocumentUsed,
    EnvironmentAdded,
    EnvironmentStateChanged,
    EpisodeFinished,
    HintWritten,
    MemoryAdded,
    MetricsReported,
    PhaseProgress,
    RegretMeasured,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    RunStateChanged,
    StageResult,
    Turn,
    Warned,
)
from trainer.rundir import RunDirectory

START = 1_790_000_000.0


@dataclass
class Made:
    """One synthetic environment while its window is open."""

    key: str
    skill: str
    name: str
    rollout: int
    easiness: float
    hint: str
    wins: list[int] = field(default_factory=list)
    regret: float | None = None


class Maker:
    """Writes one attempt after another into a run directory."""

    def __init__(
        self, root: Path, config: RunConfig, *, seed: int, hostile: bool = False, start: float = START
    ) -> None:
        self.run = RunDirectory(root)
        self.config = config
        self.hostile = hostile
        self.random = random.Random(seed)
        self.now = start
        self.memory: list[Made] = []
        self.documents: set[str] = set()
        self.seed = seed
        root.mkdir(parents=True, exist_ok=True)
        frozen = {
            "config": config.model_dump(mode="json"), "format_version": 1, "commit": "0" * 40,
            "versions": {"python": "3.11", "torch": "2.13.0"}, "hardware": {"cpus": 2, "gpus": []},
        }  # fmt: skip
        self.run.config.write_text(json.dumps(frozen), encoding="utf-8")

    def attack(self, text: str) -> str:
        """The text, with something hostile after it in a hostile run."""
        return f"{text} {self.random.choice(ATTACKS)}" if self.hostile else text

    def tick(self, seconds: float) -> float:
        self.now += seconds
        return self.now

    def attempt(self, number: int, start: int, end: int, *, finish: str | None, unfinished: bool = False) -> None:
        """Rollouts ``start`` to ``end`` (exclusive) as attempt ``number``; ``finish`` is the last run state, None for a crash."""
        log = EventLog(self.run, number, rollout=start, clock=lambda: self.tick(0.01))
        total = self.config.schedule.rollouts
        log.emit(RunStarted(
            attempt=number, start_rollout=start, total_rollouts=total, checkpoint=f"{start - 1:06d}" if start else None, pid=4000 + number,
            engine={"device": "cpu", "threads": 2, "dtype": "fp32", "parameters": 1_900_000, "sampler": "builtin", "learner": "plain"},
            versions={"python": "3.11", "torch": "2.13.0"}, sandbox_tier="sealed",
        ))  # fmt: skip
        log.emit(RunStateChanged(state="running"))
        log.emit(CorpusLoaded(source="builtin:demo", documents=180, skipped={"blank": 1}))
        self.rollouts(log, start, end, unfinished=unfinished)
        if finish is not None:
            log.emit(RunStateChanged(state=finish, reason=self.attack("asked to stop") if finish == "failed" else "",
                                     owner="infrastructure" if finish == "failed" else None))  # fmt: skip
        log.close()
        with self.run.log.open("a", encoding="utf-8") as file:
            file.write(f"attempt {number}: rollouts {start} to {end - 1}\n\x1b[32mdone\x1b[0m\r100 %\n")
            file.write(self.attack("last line") + "\n")

    def more(self, number: int, start: int, end: int) -> None:
        """Further rollouts of an attempt that is under way."""
        log = EventLog(self.run, number, rollout=start, clock=lambda: self.tick(0.01))
        self.rollouts(log, start, end, unfinished=False)
        log.close()

    def rollouts(self, log: EventLog, start: int, end: int, *, unfinished: bool) -> None:
        made: list[Made] = []
        for rollout in range(start, end):
            log.enter_rollout(rollout)
            made = self.rollout(log, rollout, made, unfinished=unfinished and rollout == end - 1)

    def rollout(self, log: EventLog, rollout: int, made: list[Made], *, unfinished: bool) -> list[Made]:
        """One rollout in the order of the loop; returns the environments of the current set."""
        schedule = self.config.schedule
        offset = rollout % schedule.regenerate_every
        began = self.now
        fresh = offset == 0 or not made
        log.emit(RolloutStarted(
            regeneration=fresh, offset=offset, active_skills=list(schedule.skills[: schedule.active_skills]),
            environments=schedule.environments, expected_unhinted=schedule.environments * schedule.plays,
            expected_hinted=schedule.environments * schedule.hinted_plays if fresh else 0,
        ))  # fmt: skip
        if fresh:
            made = self.design(log, rollout)
        won = self.play(log, rollout, offset, made, hinted=fresh, unfinished=unfinished)
        if unfinished:
            return made
        if fresh:
            self.measure(log, made, won)
        self.learn(log, rollout, made, won, began)
        return made

    def phase(
        self, log: EventLog, name: str, done: int, total: int, *, finished: bool = False, started: bool = False
    ) -> None:
        state = "finished" if finished else "started" if started else "progress"
        log.emit(PhaseProgress(phase=name, state=state, done=done, total=total, elapsed_s=self.random.uniform(0.2, 3)))

    def design(self, log: EventLog, rollout: int) -> list[Made]:
        schedule = self.config.schedule
        made: list[Made] = []
        total = schedule.environments
        self.phase(log, "design", 0, total, started=True)
        for slot in range(total):
            item = self.design_slot(log, rollout, slot)
            if item is not None:
                made.append(item)
            self.phase(log, "design", slot + 1, total, finished=slot + 1 == total)
            self.phase(log, "gates", slot + 1, total, finished=slot + 1 == total)
        self.phase(log, "hints", 0, len(made), started=True)
        for index, item in enumerate(made):
            state = "none" if self.random.random() < 0.06 else "leaky" if self.random.random() < 0.05 else "ok"
            log.emit(HintWritten(
                environment=item.key, state=state, text=None if state == "none" else item.hint, tries=1 if state == "ok" else 3,
                reason="" if state == "ok" else "no reply in three tries" if state == "none" else "names the winning action",
                reply_tokens=24,
            ))  # fmt: skip
            item.hint = "" if state == "none" else item.hint
            self.phase(log, "hints", index + 1, len(made), finished=index + 1 == len(made))
        return made

    def design_slot(self, log: EventLog, rollout: int, slot: int) -> Made | None:
        schedule = self.config.schedule
        key = f"r{rollout:04d}-s{slot:02d}"
        skill = schedule.skills[slot % schedule.active_skills]
        name = self.random.choice(NAMES)
        class_name = self.attack(f"{name}Env") if self.hostile else f"{name}Env"
        document = f"demo-{self.random.randrange(40):03d}"
        if document not in self.documents:
            self.documents.add(document)
            log.emit(DocumentUsed(
                document=document, title=self.attack(f"How {name.lower()} things settle"), words=58, metadata={"domain": "everyday"},
                text=self.attack("A tank with two inlets fills until the float closes the valve. " * 5),
            ))  # fmt: skip
        past = [item.key for item in self.random.sample(self.memory, min(2, len(self.memory)))]
        for attempt in (1, 2):
            fails = self.random.random() < 0.12
            code = CODE.format(title=name, document=document, name=name, size=self.random.choice((4, 5, 6)))
            code += f"# {self.attack('note')}\n" if self.hostile else ""
            stage = self.random.choice(("parse", "contract", "not-guessable")) if fails else None
            common = {
                "environment": key,
                "candidate": f"{key}-a{attempt}",
                "slot": slot,
                "skill": skill,
                "document": document,
            }
            log.emit(CandidateJudged(
                **common, attempt=attempt, examples=past, counter_examples=[], prompt=self.attack(f"Write an environment for {skill}."),
                reply=f"```python\n{code}```", code=code, class_name=class_name, prompt_tokens=412, reply_tokens=380, finish_reason="stop",
                accepted=not fails, failed_stage=stage, reason=self.attack(f"{stage}: not as asked") if fails else "",
                stages=self.stages(stage),
            ))  # fmt: skip
            if fails:
                continue
            log.emit(EnvironmentAdded(
                environment=key, candidate=f"{key}-a{attempt}", slot=slot, skill=skill, class_name=class_name, code=code,
                document=document, examples=past, counter_examples=[], sandbox_tier="sealed",
                measures={"lines": code.count("\n"), "state_variables": 4, "guess_rate": round(self.random.uniform(0, 0.14), 3)},
            ))  # fmt: skip
            progress = rollout / max(1, schedule.rollouts)
            easiness = min(0.95, max(0.03, self.random.gauss(0.3 + 0.25 * progress, 0.2)))
            hint = self.attack(
                "Each answer is the distance in rows plus columns; two probes in one row leave one cell."
            )
            return Made(key=key, skill=skill, name=class_name, rollout=rollout, easiness=easiness, hint=hint)
        return None

    def stages(self, failed: str | None) -> list[StageResult]:
        results = []
        for stage in STAGES:
            outcome = "failed" if stage == failed else "passed"
            results.append(StageResult(
                stage=stage, outcome=outcome, message=self.attack("SyntaxError: line 3") if outcome == "failed" else "",
                line=3 if stage == failed == "parse" else None, elapsed_s=self.random.uniform(0.001, 0.4),
                evidence={"seeds": 20, "won": 1} if stage == "not-guessable" else {},
            ))  # fmt: skip
            if stage == failed:
                break
        return results

    def play(
        self, log: EventLog, rollout: int, offset: int, made: list[Made], *, hinted: bool, unfinished: bool
    ) -> dict[str, dict[str, list[float]]]:
        schedule = self.config.schedule
        arms = ("unhinted", "hinted") if hinted else ("unhinted",)
        total = len(made) * schedule.plays * len(arms)
        self.phase(log, "play", 0, total, started=True)
        rewards: dict[str, dict[str, list[float]]] = {item.key: {"unhinted": [], "hinted": []} for item in made}
        done = 0
        for play in range(schedule.plays):
            for item in made:
                for arm in arms:
                    if unfinished and done > total * 0.6:
                        return rewards
                    reward = self.episode(log, item, arm, offset, play)
                    if reward is not None:
                        rewards[item.key][arm].append(reward)
                    done += 1
            self.phase(log, "play", done, total, finished=done == total)
        return rewards

    def episode(self, log: EventLog, item: Made, arm: str, offset: int, play: int) -> float | None:
        chance = item.easiness + (0.25 if arm == "hinted" and item.hint else 0.0)
        draw = self.random.random()
        won = draw < chance
        fault = self.random.random() < 0.01
        status = "env_error" if fault else "won" if won else "turn_limit" if draw > 0.97 else "lost"
        length = self.random.randint(1, 4) if won else self.random.randint(3, 7)
        reward = None if fault else 1.0 if won else 0.0
        seed = (hash_of(item.key, play) + self.seed) % 2**62
        turns = [self.turn(item, arm, index, length, won and not fault, seed) for index in range(length)]
        if fault:
            turns[-1] = turns[-1].model_copy(update={"reward": None, "terminated": False})
        tokens = sum(turn.observation_tokens + turn.reply_tokens for turn in turns)
        log.emit(EpisodeFinished(
            episode=f"{item.key}/o{offset}/{arm[0]}/{play:02d}", environment=item.key, arm=arm, offset=offset, play=play, seed=seed,
            status=status, reward=reward, turns=turns, final_observation=self.attack("Found." if won else "Out of turns."),
            prompt_tokens=96, total_tokens=tokens + 96, trained_tokens=sum(turn.reply_tokens for turn in turns),
            fault=self.attack("ZeroDivisionError: division by zero, line 14") if fault else "", elapsed_s=self.random.uniform(0.05, 0.6),
        ))  # fmt: skip
        return reward

    def turn(self, item: Made, arm: str, index: int, length: int, won: bool, seed: int) -> Turn:
        cells = random.Random(f"{seed}-{index}-{arm if index else ''}")
        observation = (
            "Grid of 5. Probe a cell with \\boxed{probe R C}." if index == 0 else f"Distance {cells.randrange(1, 6)}."
        )
        if index == 0 and arm == "hinted" and item.hint:
            observation += f"\n\nHINT: {item.hint}"
        action = f"probe {cells.randrange(5)} {cells.randrange(5)}"
        last = index + 1 == length
        return Turn(
            observation=self.attack(observation) if index else observation, reply=self.attack(f"I probe. \\boxed{{{action}}}"),
            action=f"\\boxed{{{action}}}", reward=1.0 if last and won else 0.0, terminated=last, observation_tokens=22 + 6 * (index == 0),
            reply_tokens=11, logprob_mean=-self.random.uniform(0.05, 1.2), info={"turns": float(index + 1)} if last else {},
        )  # fmt: skip

    def measure(self, log: EventLog, made: list[Made], won: dict[str, dict[str, list[float]]]) -> None:
        for item in made:
            unhinted, hinted = won[item.key]["unhinted"], won[item.key]["hinted"]
            state = "ok" if item.hint else "no_hint"
            mean_u = sum(unhinted) / len(unhinted) if unhinted else None
            mean_h = sum(hinted) / len(hinted) if hinted else None
            item.regret = mean_h - mean_u if state == "ok" and mean_u is not None and mean_h is not None else None
            error = (
                math.sqrt((mean_u * (1 - mean_u) + mean_h * (1 - mean_h)) / len(unhinted))
                if item.regret is not None
                else None
            )
            log.emit(RegretMeasured(
                environment=item.key, skill=item.skill, state=state, regret=item.regret, standard_error=error, unhinted_mean=mean_u,
                hinted_mean=mean_h, unhinted_n=len(unhinted), hinted_n=len(hinted), success_share=mean_u,
            ))  # fmt: skip
            if item.regret is not None and mean_u is not None:
                log.emit(MemoryAdded(environment=item.key, skill=item.skill, class_name=item.name, snippet="class …", success_share=mean_u,
                                     regret=item.regret, tags=["band"] if 0.15 <= mean_u <= 0.85 else []))  # fmt: skip
                self.memory.append(item)

    def learn(
        self, log: EventLog, rollout: int, made: list[Made], won: dict[str, dict[str, list[float]]], began: float
    ) -> None:
        schedule = self.config.schedule
        if rollout % schedule.regenerate_every == schedule.regenerate_every - 1:
            for item in made:
                self.reward_designer(log, item, won)
        self.phase(log, "learn", 0, 1, started=True)
        self.tick(2.0)
        self.phase(log, "learn", 1, 1, finished=True)
        self.phase(log, "sync", 1, 1, finished=True)
        if self.random.random() < 0.1:
            log.emit(Warned(message=self.attack("one reply had no end-of-turn token"), where="play"))
        log.emit(MetricsReported(values=metrics_of(rollout, made, won, self.random)))
        if rollout % 5 == 3 and made:
            log.emit(
                EnvironmentStateChanged(
                    environment=made[0].key, state="barred", reason=self.attack("a step hung for 5 s")
                )
            )
        self.phase(log, "save", 1, 1, finished=True)
        log.emit(CheckpointSaved(name=f"{rollout:06d}", next_rollout=rollout + 1, bytes=23_400_000, elapsed_s=0.4))
        elapsed = self.now - began
        log.emit(RolloutFinished(
            elapsed_s=elapsed, phase_s={"design": 1.2, "play": elapsed * 0.6, "learn": 2.0}, tokens_sampled=21_000, tokens_trained=9_000,
            eta_s=elapsed * (schedule.rollouts - rollout - 1),
        ))  # fmt: skip

    def reward_designer(self, log: EventLog, item: Made, won: dict[str, dict[str, list[float]]]) -> None:
        rewards = won[item.key]["unhinted"]
        rate = sum(rewards) / len(rewards) if rewards else None
        anchor = None if rate is None else max(0.0, 1 - max(0.0, 0.4 - rate, rate - 0.6) / 0.25)
        term = None if item.regret is None else min(1.0, max(0.0, item.regret / 0.15))
        raw = 0.6 * (anchor or 0.0) + 0.4 * (term or 0.0)
        log.emit(DesignerRewarded(
            environment=item.key, skill=item.skill, variant="blend", win_rate=rate, regret=item.regret, anchor=anchor, regret_term=term,
            raw=raw, skill_mean=0.4, weight=8.0, reward=(raw - 0.4) * 8.0, faulty=False,
        ))  # fmt: skip


def make_run(
    root: Path, *, rollouts: int = 24, total: int | None = None, seed: int = 7, hostile: bool = False, resume_from: int | None = None,
    unfinished: bool = False, finish: str | None = None, environments: int = 6, plays: int = 8, start: float = START,
) -> RunDirectory:  # fmt: skip
    """Write ``rollouts`` rollouts (of ``total``) into ``root``; with ``resume_from`` a second attempt starts at that rollout."""
    config = synthetic_config(rollouts=total or rollouts, environments=environments, plays=plays)
    maker = Maker(root, config, seed=seed, hostile=hostile, start=start)
    if resume_from is None:
        maker.attempt(1, 0, rollouts, finish=finish, unfinished=unfinished)
    else:
        maker.attempt(1, 0, resume_from + 3, finish=None)
        maker.documents.clear()
        maker.attempt(2, resume_from, rollouts, finish=finish, unfinished=unfinished)
    return maker.run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rollouts", type=int, default=24)
    parser.add_argument("--total", type=int)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--resume-from", type=int)
    parser.add_argument("--unfinished", action="store_true")
    parser.add_argument("--finish")
    given = parser.parse_args()
    make_run(
        given.directory, rollouts=given.rollouts, total=given.total, seed=given.seed, hostile=given.hostile,
        resume_from=given.resume_from, unfinished=given.unfinished, finish=given.finish, start=time.time() - 6 * given.rollouts,
    )  # fmt: skip


if __name__ == "__main__":
    main()
