"""What the built-in model does, measured through the sandbox: designs through all gates, hints, and play in both arms.

Prompts use held-out documents. The second half of the prompts shows examples from the first half's measured programs, as memory does.
"""

from __future__ import annotations

import collections
import functools
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox import EnvironmentFault, Sandbox
from trainer.agent import action_of
from trainer.config import SKILLS
from trainer.extract import extract_program
from trainer.hints import leak_of
from trainer.prompts import Message, ShownCounterExample, ShownDocument, ShownExample
from trainer.prompts.compact import CompactPrompts
from trainer.rollout.builtin import BuiltinSampler
from trainer.rollout.engine import Sampled, SampleRequest
from trainer.rollout.tokens import ChatFormat
from trainer.starter.data import documents
from trainer.starter.families import FAMILIES
from trainer.starter.families.program import LEVELS, Theme
from trainer.weights import load_tokenizer

PROMPTS = CompactPrompts()


@dataclass(frozen=True, slots=True)
class Settings:
    """Loop settings the figures depend on."""

    prompts: int = 200
    environments: int = 60
    plays: int = 8
    max_turns: int = 10
    designer_temperature: float = 0.6
    agent_temperature: float = 1.0
    hint_temperature: float = 0.3
    seed: int = 0


@dataclass(slots=True)
class Design:
    """One design attempt and what became of it."""

    skill: str
    document: ShownDocument
    code: str
    tokens: int
    failed: str = ""
    class_name: str = ""
    hint: str = ""
    leak: str = ""
    won: dict[bool, list[bool]] = field(default_factory=lambda: {False: [], True: []})

    @property
    def family(self) -> str:
        """The last capitalised word before `Env`."""
        found = re.search(r"([A-Z][a-z]+)Env$", self.class_name)
        return found.group(1) if found else "other"

    @property
    def rates(self) -> tuple[float, float]:
        """Unhinted and hinted win rate."""
        return mean(self.won[False]), mean(self.won[True])


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 for no values."""
    return sum(values) / len(values) if values else 0.0


class Bench:
    """Model, sandbox and counters of one measurement."""

    def __init__(self, directory: Path, sandbox: Sandbox, settings: Settings, *, threads: int) -> None:
        self.settings, self.sandbox = settings, sandbox
        self.chat = ChatFormat(load_tokenizer(directory))
        self.sampler = BuiltinSampler.from_directory(
            directory, dtype="fp32", device="cpu", threads=threads, context_tokens=2048, max_batch=128
        )
        self.rng = random.Random(settings.seed)  # noqa: S311 - a seeded stream, not a secret
        self.documents = documents(held_out=True)

    def ask(self, prompts: Sequence[Sequence[int]], *, tokens: int, temperature: float) -> list[Sampled]:
        """One reply per prompt of token ids."""
        requests = [
            SampleRequest(tuple(ids), tokens, temperature, self.rng.getrandbits(40), self.chat.stop_ids)
            for ids in prompts
        ]
        replies = self.sampler.generate(requests)
        return [reply for reply in replies if isinstance(reply, Sampled)]

    def ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a prompt, as the loop makes them."""
        return self.chat.prompt_ids([{"role": message["role"], "content": message["content"]} for message in messages])

    def prompt(self, skill: str, document: ShownDocument, memory: Sequence[Design]) -> list[Message]:
        """A designer prompt with up to two examples and one counter-example of `memory`."""
        same = [design for design in memory if design.skill == skill]
        good = [design for design in same if 0.15 <= design.rates[0] <= 0.85]
        extreme = [design for design in same if not 0.1 <= design.rates[0] <= 0.9]
        examples = [
            ShownExample(d.class_name, skill, d.rates[0], d.rates[1] - d.rates[0], d.code[:2000])
            for d in self.rng.sample(good, min(2, len(good)))
        ]
        counters = [
            ShownCounterExample(d.class_name, "too easy" if d.rates[0] > 0.9 else "too hard")
            for d in self.rng.sample(extreme, min(1, len(extreme)))
        ]
        return PROMPTS.design(
            skill=skill,
            document=document,
            examples=examples,
            counter_examples=counters,
            max_turns=self.settings.max_turns,
        )

    def designs(self, count: int, memory: Sequence[Design]) -> list[Design]:
        """`count` designs on held-out documents, examined by all gates."""
        asked = [(SKILLS[i % len(SKILLS)], self.rng.choice(self.documents)) for i in range(count)]
        prompts = [self.ids(self.prompt(skill, document, memory)) for skill, document in asked]
        replies = self.ask(prompts, tokens=640, temperature=self.settings.designer_temperature)
        made = []
        for (skill, document), reply in zip(asked, replies, strict=True):
            found = extract_program(self.chat.reply_text(reply.token_ids), source_bytes=200_000)
            design = Design(skill, document, found.code, len(reply.token_ids), "extract" if found.problem else "")
            if not design.failed:
                report = self.sandbox.examine(found.code)
                design.failed, design.class_name = report.failed_stage or "", report.class_name or ""
            made.append(design)
        return made

    def give_hints(self, designs: Sequence[Design]) -> None:
        """One hint per design, checked for leaks against eight seeds."""
        prompts = [self.ids(PROMPTS.hint(code=design.code)) for design in designs]
        replies = self.ask(prompts, tokens=96, temperature=self.settings.hint_temperature)
        for design, reply in zip(designs, replies, strict=True):
            design.hint = self.chat.reply_text(reply.token_ids).strip()
            environment = self.sandbox.load(design.code)
            solutions = [self.sandbox.solution(environment, seed, self.settings.max_turns) for seed in range(8)]
            environment.close()
            design.leak = leak_of(design.hint, solutions)

    def play(self, designs: Sequence[Design]) -> None:
        """Both arms on the same seeds, all environments in lockstep."""
        tables = [(design, self.sandbox.load(design.code)) for design in designs]
        seats = [
            (design, environment, hinted, play)
            for design, environment in tables
            for hinted in (False, True)
            for play in range(self.settings.plays)
        ]
        opened = self.sandbox.reset_many(
            [(environment, 5000 + play, self.settings.max_turns) for _, environment, _, play in seats]
        )
        live: list[tuple[Design, bool, Any, list[int]]] = []
        for (design, _, hinted, _), answer in zip(seats, opened, strict=True):
            if isinstance(answer, EnvironmentFault):
                continue
            text = answer.observation
            if hinted:
                text = PROMPTS.inject_hint(observation=text, hint=design.hint)
            live.append((design, hinted, answer.episode, list(self.ids(PROMPTS.play(observation=text)))))
        for _ in range(self.settings.max_turns):
            if live:
                live = self._round(live)
        for design, hinted, _, _ in live:
            design.won[hinted].append(False)
        for _, environment in tables:
            environment.close()

    def _round(self, live: list[tuple[Design, bool, Any, list[int]]]) -> list[tuple[Design, bool, Any, list[int]]]:
        replies = self.ask([ids for _, _, _, ids in live], tokens=24, temperature=self.settings.agent_temperature)
        actions = [action_of(self.chat.reply_text(reply.token_ids)) for reply in replies]
        steps = self.sandbox.step_many([(seat[2], action) for seat, action in zip(live, actions, strict=True)])
        left = []
        for seat, reply, step in zip(live, replies, steps, strict=True):
            design, hinted, _, ids = seat
            if isinstance(step, EnvironmentFault):
                continue
            if step.terminated or step.truncated or reply.finish == "length":
                design.won[hinted].append(step.terminated and step.reward > 0)
                continue
            ids += [*reply.token_ids, *self.chat.observation_ids(step.observation)]
            left.append(seat)
        return left


def uses_document(design: Design) -> bool:
    """Whether a word the program writes with a capital, and that no family writes of its own accord, stands in the document.

    Whole words count, with or without a plural's `s`; `Right` or `Open` in a program is the family's word, whatever the document says.
    """
    text = f"{design.document.title} {design.document.text}".lower()
    words = set(re.findall(r"[A-Z][a-z]{2,}", design.code)) - family_words()
    return any(re.search(rf"\b{word.lower()}(?:s|es)?\b", text) for word in words)


@functools.cache
def family_words() -> frozenset[str]:
    """Capitalised words the families write whatever the document says: drawn programs' words but the theme's."""
    theme = Theme("Qqq", "Qqq")
    rng = random.Random(0)  # noqa: S311 - a seeded stream, not a secret
    sources = [
        family.draw(rng, theme=theme, level=level, max_turns=10).source
        for family in FAMILIES
        for level in LEVELS
        for _ in range(10)
    ]
    return frozenset(re.findall(r"[A-Z][a-z]{2,}", "\n".join(sources))) - {theme.thing}


def measure(directory: Path, settings: Settings, *, threads: int = 1) -> dict[str, Any]:
    """The report of the model card."""
    began = time.monotonic()
    with Sandbox() as sandbox:
        bench = Bench(directory, sandbox, settings, threads=threads)
        first = bench.designs(settings.prompts // 2, [])
        half = settings.environments // 2
        played = [design for design in first if not design.failed][:half]
        bench.give_hints(played)
        bench.play(played)
        second = bench.designs(settings.prompts - settings.prompts // 2, played)
        more = [design for design in second if not design.failed][: settings.environments - half]
        bench.give_hints(more)
        bench.play(more)
    return report_of([*first, *second], [*played, *more], settings, time.monotonic() - began)


def report_of(designs: Sequence[Design], played: Sequence[Design], settings: Settings, wall_s: float) -> dict[str, Any]:
    """Figures of a measurement, rounded."""
    passed = [design for design in designs if not design.failed]
    families = collections.defaultdict(list)
    for design in played:
        families[design.family].append(design.rates)
    return {
        "prompts": len(designs),
        "pass_rate": round(mean([not design.failed for design in designs]), 3),
        "failed": dict(collections.Counter(design.failed for design in designs if design.failed)),
        "pass_rate_by_skill": {
            skill: round(mean([not design.failed for design in designs if design.skill == skill]), 2)
            for skill in SKILLS
        },
        "distinct_frac": round(len({design.code for design in passed}) / max(1, len(passed)), 3),
        "document_frac": round(mean([uses_document(design) for design in passed]), 3),
        "families": dict(collections.Counter(design.family for design in passed)),
        "program_tokens": round(mean([design.tokens for design in passed]), 1),
        "leaky_hints": sum(bool(design.leak) for design in played),
        "played": len(played),
        "win_rate_unhinted": round(mean([design.rates[0] for design in played]), 3),
        "win_rate_hinted": round(mean([design.rates[1] for design in played]), 3),
        "regret_mean": round(mean([design.rates[1] - design.rates[0] for design in played]), 3),
        "learnable_band_frac": round(mean([0.2 <= design.rates[0] <= 0.8 for design in played]), 3),
        "by_family": {
            name: {
                "n": len(rates),
                "unhinted": round(mean([r[0] for r in rates]), 2),
                "hinted": round(mean([r[1] for r in rates]), 2),
            }
            for name, rates in sorted(families.items())
        },
        "designer_temperature": settings.designer_temperature,
        "agent_temperature": settings.agent_temperature,
        "wall_s": round(wall_s, 1),
    }
