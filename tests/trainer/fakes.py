"""A scripted sampler and learner at our own interfaces, with a real byte tokenizer: the whole loop in a second, the sandbox real.

The fake policy is one number, its skill: the chance that an unhinted move is a good one. The learner moves it with the advantages,
so that weights which were not synced, saved or restored show up in what is sampled next.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from trainer.config import RunConfig
from trainer.learn.engine import TrainRow
from trainer.presets import load_preset, with_overrides
from trainer.rollout.engine import Sampled, SampleRequest, SamplerError
from trainer.rollout.tokens import ChatFormat
from trainer.run import Engines

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = ("Lantern", "Harbor", "Beetle", "Comet", "Valve", "Meadow", "Ribbon", "Anvil")

GAME = '''\
import random


class {name}Env:
    """Find the number of the {word}: every answer says higher or lower."""

    def __init__(self, max_turns={turns}, **kwargs):
        self.max_turns = min(max_turns, {turns})

    def reset(self, seed=None):
        self.rng = random.Random(seed)
        self.seed = seed or 0
        self.secret = self.rng.randint({low}, {high})
        self.turn = 0
        self.pad = ""
        parity = "even" if self.secret % 2 == 0 else "odd"
        rules = f"The {word} hides an {{parity}} number from {low} to {high}. You have {{self.max_turns}} turns."
        return f"Round {{self.rng.randint(100, 999)}}. {{rules}} Answer \\\\boxed{{{{N}}}}.", {{}}

    def step(self, action):
        self.turn += 1
        {trap}
        digits = "".join(c for c in action if c.isdigit())[:6]
        guess = int(digits) if digits else None
        late = self.turn >= self.max_turns
        if guess is None:
            return "Answer with a number.", 0.0, False, late, {{}}
        if guess == self.secret:
            return "That is it.", 1.0, True, False, {{"turn": self.turn}}
        word = "higher" if guess < self.secret else "lower"
        return f"{{word}} than {{guess}}; turn {{self.turn}}.{{self.pad}}", 0.0, False, late, {{"turn": self.turn}}

    def solution(self):
        return ["\\\\boxed{{" + str(self.secret) + "}}"]

    def close(self):
        pass
'''
# The gates use small seeds, episodes 63-bit ones: these programs pass the gates and misbehave in play.
TRAPS = {
    "sound": "pass",
    "wordy": "self.pad = '.' * 3000",
    "raises": "assert self.seed < 10**6, 'broken in play'",
    "hangs": "\n        while self.seed > 10**6 and self.turn == 2:\n            pass",
}


def game(
    *,
    name: str = "LanternHunt",
    word: str = "lantern",
    low: int = 31,
    high: int = 90,
    turns: int = 6,
    trap: str = "sound",
) -> str:
    """A program that passes all gates; a good player halves the interval."""
    return GAME.format(name=name, word=word, low=low, high=high, turns=turns, trap=TRAPS[trap])


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, ChatML markers, nothing learned."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>", "<|pad|>")])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|pad|>", chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


class FakeSampler:
    """Answers by role, which it reads off the compact prompts. Everything it draws comes from the request's seed."""

    def __init__(self, tokenizer: Any, *, context_tokens: int, faults: Mapping[str, float] | None = None) -> None:
        self.context_tokens = context_tokens
        self.skill = 0.0
        self.requests = 0
        self._tokenizer = tokenizer
        self._end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        # Shares of replies that go wrong: "syntax", "raises", "hangs", "wordy", "fixed" (designs; a fixed one hides the same number
        # in every episode), "no_hint", "tells" (hints that name the number), "sampler", "moves", "length".
        self._faults = dict(faults or {})

    def generate(self, requests: Sequence[SampleRequest]) -> list[Sampled | SamplerError]:
        self.requests += len(requests)
        return [self._answer(r) for r in requests]

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        self.skill = float(dict(weights)["skill"])

    def describe(self) -> Mapping[str, Any]:
        return {"name": "fake", "threads": 1}

    def close(self) -> None:
        pass

    def _answer(self, request: SampleRequest) -> Sampled | SamplerError:
        rng = random.Random(request.seed)
        prompt = self._tokenizer.decode(list(request.prompt_ids))
        failing = self._faults.get("moves", 0.0) if "Play. Reply" in prompt else self._faults.get("sampler", 0.0)
        if rng.random() < failing:
            return SamplerError("scripted failure")
        text = self._reply(prompt, rng)
        ids = tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        finish = "length" if rng.random() < self._faults.get("length", 0.0) else "stop"
        ids = ids if finish == "length" else (*ids, self._end)
        if len(ids) > request.max_new_tokens:
            ids, finish = ids[: request.max_new_tokens], "length"
        return Sampled(ids, tuple(-0.1 - (i % 5) / 10 for i in range(len(ids))), finish)  # type: ignore[arg-type]

    def _reply(self, prompt: str, rng: random.Random) -> str:
        if "Design a game." in prompt:
            return self._design(rng)
        if "Give a hint." in prompt:
            gone = rng.random() < self._faults.get("no_hint", 0.0)
            if "tells" in self._faults and rng.random() < self._faults["tells"]:
                return "The number is " + re.findall(r"self.secret = (\d+)", prompt)[-1] + "."
            return "" if gone else "Halve the interval with every answer, in the form \\boxed{N}."
        if "has a fatal bug" in prompt:
            draw = rng.random()
            bad = self._faults.get("audit_no", 0.0)
            return (
                "\\boxed{no}"
                if draw < bad
                else "Hm."
                if draw < bad + self._faults.get("audit_odd", 0.0)
                else "\\boxed{yes}"
            )
        return self._move(prompt, rng)

    def _design(self, rng: random.Random) -> str:
        word = rng.choice(WORDS)
        trap = next((t for t in ("raises", "hangs", "wordy") if rng.random() < self._faults.get(t, 0.0)), "sound")
        code = game(
            name=f"{word}Hunt{rng.randrange(100)}", word=word.lower(), low=rng.randint(25, 40), high=rng.randint(60, 99),
            turns=rng.randint(5, 7), trap=trap,
        )  # fmt: skip
        if "fixed" in self._faults:
            code = game().replace(
                "self.secret = self.rng.randint(31, 90)", "self.secret = 67"
            )  # the third halving finds it
        if rng.random() < self._faults.get("syntax", 0.0):
            code = code.replace("def step(self, action):", "def step(self, action)")
        return f"```python\n{code}\n```"

    def _move(self, prompt: str, rng: random.Random) -> str:
        low, high = map(int, re.findall(r"from (\d+) to (\d+)", prompt)[-1])
        top = high
        for word, guess in re.findall(r"(higher|lower) than (\d+)", prompt):
            low, high = (max(low, int(guess) + 1), high) if word == "higher" else (low, min(high, int(guess) - 1))
        good = rng.random() < (0.95 if "HINT:" in prompt else 0.55 + self.skill)
        return f"\\boxed{{{(low + high) // 2 if good else rng.randint(1, top)}}}"


class FakeLearner:
    """One weight with momentum; moves with the mean advantage. Writes an ordinary weights file."""

    def __init__(self) -> None:
        self.skill = torch.zeros((), dtype=torch.float64)
        self.momentum = torch.zeros((), dtype=torch.float64)
        self.updates = 0
        self.batches: list[list[TrainRow]] = []

    def update(self, rows: Sequence[TrainRow], *, rollout: int) -> Mapping[str, float | None]:
        self.batches.append(list(rows))
        signal = sum(r.advantage * r.weight * sum(r.mask) for r in rows) / sum(len(r.mask) for r in rows)
        self.momentum = self.momentum * 0.5 + signal
        self.skill = (self.skill + 0.001 * (1 + self.updates) + 0.01 * self.momentum).clamp(-0.2, 0.4)
        self.updates += 1
        return {"loss/total": float(-signal), "optim/lr": 0.01, "learn/tokens": float(sum(sum(r.mask) for r in rows)),
                "learn/rows": float(len(rows))}  # fmt: skip

    def weights(self) -> Iterable[tuple[str, torch.Tensor]]:
        yield "skill", self.skill

    def save_model(self, directory: Path) -> None:
        save_file({"skill": self.skill}, directory / "model.safetensors")
        (directory / "config.json").write_text(json.dumps({"model_type": "fake"}))

    def state(self) -> dict[str, Any]:
        return {"momentum": self.momentum, "updates": self.updates}

    def load_state(self, model_directory: Path, state: Mapping[str, Any]) -> None:
        self.skill = load_file(model_directory / "model.safetensors")["skill"]
        self.momentum, self.updates = state["momentum"], int(state["updates"])

    def describe(self) -> Mapping[str, Any]:
        return {"name": "fake"}

    def close(self) -> None:
        pass


class FakeEngines:
    """`OpenEngines` for `trainer.run.attempt`; keeps the last ones opened for assertions."""

    def __init__(self, **faults: float) -> None:
        self.faults = faults
        self.sampler: FakeSampler
        self.learner: FakeLearner

    def __call__(self, config: RunConfig, known: Mapping[str, Any]) -> Engines:
        tokenizer = byte_tokenizer()
        self.sampler = FakeSampler(tokenizer, context_tokens=config.model.context_tokens, faults=self.faults)
        self.learner = FakeLearner()
        return Engines(self.sampler, self.learner, ChatFormat(tokenizer), Path("fake"))


def fake_config(**overrides: Any) -> RunConfig:
    """The `tiny` preset in bytes instead of tokens; settings as a__b=value."""
    values: dict[str, Any] = {
        "model.context_tokens": 16384, "designer.max_tokens": 4096, "hint.max_tokens": 512,
    }  # fmt: skip
    values |= {name.replace("__", "."): value for name, value in overrides.items()}
    return with_overrides(load_preset("tiny"), values)
