"""Makes the built-in model from its recipe: tokenizer, pre-training, saving. Seeded, resumable, CPU.

Shapes: B rows of a batch, T tokens of a row, K trained tokens of a batch, V vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.multiprocessing
from torch.nn import functional as F

from trainer.errors import UserError
from trainer.starter.data import Example, documents, stream
from trainer.starter.muon import Muon
from trainer.starter.recipe import Recipe, as_json, learning_rate
from trainer.starter.tokens import END, PAD, PIECES, START, load_tokenizer, train_tokenizer
from trainer.starter.words import ordinary_words

TOKENIZER_CHUNKS = 4
# A hint is ten tokens and a move is one that matters, where a program has a hundred that hardly vary.
REPLY_WEIGHTS = {"design": 1.0, "hint": 3.0}
ORIGIN = "origin.json"
_WORK_FILES = ("tokenizer.json", "state.pt")
TOKENIZER_CHUNK_BASE = 10_000_000  # chunks that training never reaches


@dataclass(frozen=True, slots=True)
class Row:
    """One training row: token ids and, per token, whether it is trained on (1) or context (0)."""

    ids: list[int]
    mask: list[int]
    kind: str


def encode_rows(tokenizer: Any, examples: Sequence[Example]) -> list[Row]:
    """Rows of `examples`; each part is encoded apart, as the loop does, and every reply ends with the end-of-turn token."""
    texts = [part for example in examples for part in example.parts]
    encoded = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    end = tokenizer.convert_tokens_to_ids(END)
    rows = []
    for example in examples:
        ids: list[int] = []
        mask: list[int] = []
        for position in range(len(example.parts)):
            part = next(encoded)
            if position % 2:
                part = [*part, end]
            ids += part
            mask += [position % 2] * len(part)
        rows.append(Row(ids, mask, example.kind))
    return rows


def batches(rows: Sequence[Row], *, batch_tokens: int, rng: random.Random) -> list[list[Row]]:
    """Rows of like length together, at most `batch_tokens` padded tokens a batch, batches shuffled."""
    ordered = sorted(rows, key=lambda row: (len(row.ids), row.ids))
    made: list[list[Row]] = [[]]
    for row in ordered:
        if made[-1] and len(row.ids) * (len(made[-1]) + 1) > batch_tokens:
            made.append([])
        made[-1].append(row)
    rng.shuffle(made)
    return made


def new_model(recipe: Recipe, *, pad_id: int, end_id: int, vocab: int, words: Sequence[int] = ()) -> Any:
    """A freshly initialised `Qwen3ForCausalLM` with tied embeddings; `words` are the ids of the ordinary words."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(recipe.seed)
    settings: dict[str, Any] = dict(  # noqa: C408 - reads as the call it stands for
        vocab_size=vocab,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.mlp,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        head_dim=recipe.head_dim,
        max_position_embeddings=recipe.context_tokens,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": recipe.rotary_base},
        bos_token_id=None,
        eos_token_id=end_id,
        pad_token_id=pad_id,
        attn_implementation="sdpa",
    )
    make: Any = Qwen3ForCausalLM  # transformers gives its classes no signature
    model = make(Qwen3Config(**settings))
    with torch.no_grad():
        _copying_start(model, recipe, words)
    return model


def _copying_start(model: Any, recipe: Recipe, words: Sequence[int]) -> None:
    """A start from which copying is near: found by trial, see docs/starter-model.md.

    Embeddings lie apart from each other but for two directions: one that all pieces share and one of the `words`. In every layer but the
    first, half of the heads write what they look at, so that it becomes likely as it is, and one of them looks at the words from anywhere.
    """
    table = model.model.embed_tokens.weight
    table.mul_(recipe.embedding_std / model.config.initializer_range)
    anything, word = torch.linalg.qr(torch.randn(recipe.hidden, 2)).Q.T
    table.add_(recipe.shared_norm * anything)
    table[list(words)] += recipe.shared_norm * word
    size, heads = recipe.head_dim, recipe.heads // recipe.kv_heads
    slowest = size // 2 - 1  # the dimension that turns least with distance
    for number, layer in enumerate(model.model.layers):
        attention = layer.self_attn
        attention.q_norm.weight.fill_(recipe.query_gain)
        attention.k_norm.weight.fill_(recipe.query_gain)
        if number:
            rows = torch.linalg.qr(torch.randn(recipe.hidden, size)).Q.T
            attention.v_proj.weight[:size] = rows
            attention.o_proj.weight[:, : heads * size] = recipe.copy_gain * rows.T.repeat(1, heads)
            attention.q_proj.weight[slowest] += recipe.look_gain * anything
            attention.k_proj.weight[slowest] += recipe.look_gain * word


def batch_loss(
    model: Any, rows: Sequence[Row], *, pad_id: int, context_weight: float, play_weight: float
) -> torch.Tensor:
    """Summed, weighted cross-entropy: reply tokens weigh by their kind, context tokens `context_weight`.

    Predicting the context too is what makes copying heads form early: replies alone are one token in fifteen of a play.
    Rows are padded on the right, so causal attention needs no mask.
    """
    width = max(len(row.ids) for row in rows)
    ids_BT = torch.tensor([row.ids + [pad_id] * (width - len(row.ids)) for row in rows])
    weight_BT = torch.tensor(
        [weights_of(row, context_weight, play_weight) + [0.0] * (width - len(row.ids)) for row in rows]
    )
    hidden_BTD = model.model(input_ids=ids_BT, use_cache=False).last_hidden_state
    counted_BT = weight_BT[:, 1:] > 0
    logits_KV = model.lm_head(hidden_BTD[:, :-1][counted_BT])
    losses_K = F.cross_entropy(logits_KV.float(), ids_BT[:, 1:][counted_BT], reduction="none")
    return (losses_K * weight_BT[:, 1:][counted_BT]).sum()


def weights_of(row: Row, context_weight: float, play_weight: float) -> list[float]:
    """Loss weight of each token of `row`; the context counts in designs only, where words recur and can be copied."""
    context = context_weight if row.kind == "design" else 0.0
    reply = play_weight if row.kind == "play" else REPLY_WEIGHTS[row.kind]
    return [reply if trained else context for trained in row.mask]


def optimizers(model: Any, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms."""
    inner = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    other = [p for name, p in model.named_parameters() if not (p.ndim == 2 and "embed" not in name)]
    muon = Muon(inner, lr=recipe.stages[0].start_rate, momentum=0.95, weight_decay=recipe.weight_decay)
    return [
        muon,
        torch.optim.AdamW(
            other, lr=recipe.stages[0].start_rate, betas=(0.9, 0.98), eps=5e-5, weight_decay=0.0, fused=True
        ),
    ]


class Training:
    """Model, optimiser and position in the stream; `save` and `load` make the build resumable."""

    def __init__(self, recipe: Recipe, tokenizer: Any, *, rank: int = 0, ranks: int = 1) -> None:
        self.recipe, self.tokenizer, self.rank, self.ranks = recipe, tokenizer, rank, ranks
        self.pad_id, self.end_id = tokenizer.convert_tokens_to_ids(PAD), tokenizer.convert_tokens_to_ids(END)
        words = tokenizer.convert_tokens_to_ids(list(ordinary_words()))
        self.model = new_model(recipe, pad_id=self.pad_id, end_id=self.end_id, vocab=len(tokenizer), words=words)
        self.optimizers = optimizers(self.model, recipe)
        self.step = self.chunk = self.tokens = 0
        self.wall_s = 0.0
        self.loss = math.nan  # mean of the newest chunk

    def run_chunk(self, chunk: int) -> None:
        """Train on one chunk of the stream."""
        recipe = self.recipe
        stage, _ = recipe.stage(self.step)
        examples = stream(
            documents(held_out=False),
            seed=recipe.seed,
            chunk=chunk,
            designs=recipe.designs_per_chunk,
            plays=stage.plays,
        )
        rows = encode_rows(self.tokenizer, examples)
        losses = []
        order = random.Random(chunk)  # noqa: S311 - a seeded order, not a secret
        for batch in batches(rows, batch_tokens=recipe.batch_tokens, rng=order):
            if self.step >= recipe.steps:
                break
            for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
                group["lr"] = learning_rate(recipe, self.step)
            mine = batch[self.rank :: self.ranks] or batch[:1]  # a rank without rows takes one and gives it no weight
            weight = 1.0 if len(batch) > self.rank else 0.0
            loss = batch_loss(
                self.model,
                mine,
                pad_id=self.pad_id,
                context_weight=recipe.context_weight,
                play_weight=stage.play_weight,
            )
            # The same divisor for every batch: a batch of plays has a tenth of the trained tokens of a batch of designs, and its
            # noise, averaged over so few, would outweigh them.
            loss = loss * (weight / recipe.batch_tokens)
            loss.backward()  # type: ignore[no-untyped-call]
            self._add_up_gradients()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            self.step += 1
            self.tokens += sum(len(row.ids) for row in batch)
            losses.append(float(loss.detach()) * self.ranks)
        self.loss = sum(losses) / len(losses)

    def _add_up_gradients(self) -> None:
        """Sum over the ranks, in one message: a thread of its own per process loses far less to a busy neighbour than shared loops."""
        if self.ranks == 1:
            return
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        torch.distributed.all_reduce(flat)
        at = 0
        for gradient in gradients:
            gradient.copy_(flat[at : at + gradient.numel()].view_as(gradient))
            at += gradient.numel()

    def save(self, path: Path) -> None:
        """Write the whole state aside and rename it into place."""
        state = {
            "model": self.model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step, "chunk": self.chunk, "tokens": self.tokens, "wall_s": self.wall_s, "loss": self.loss,
        }  # fmt: skip
        aside = path.with_suffix(".part")
        torch.save(state, aside)
        aside.replace(path)

    def load(self, path: Path) -> bool:
        """Continue from `path`; False when there is nothing to continue. That it is the same recipe's, `refuse_other_work` has seen to."""
        if not path.exists():
            return False
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.chunk, self.tokens = state["step"], state["chunk"], state["tokens"]
        self.wall_s, self.loss = state["wall_s"], state["loss"]
        return True


def tokenizer_texts(recipe: Recipe) -> Iterator[str]:
    """Texts the merges are counted on: the training stream's own, from chunks that are never trained on, and all small numbers."""
    shown = documents(held_out=False)
    words = frozenset(ordinary_words())  # pieces already, so no merges are spent on them
    for chunk in range(TOKENIZER_CHUNKS):
        for example in stream(shown, seed=recipe.seed, chunk=TOKENIZER_CHUNK_BASE + chunk, designs=160):
            for part in example.parts:
                # A marker written in a text must never become the control token, so no merge may spell one.
                for text in re.split(re.escape(START) + "|" + re.escape(END), part):
                    yield re.sub(r"[A-Z][a-z]+", lambda found: "" if found.group() in words else found.group(), text)
    for _ in range(200):
        yield " ".join(f"{number:02d} {number}" for number in range(100))


def origin(recipe: Recipe) -> dict[str, Any]:
    """What a build in a work folder belongs to: the recipe, and a digest of the texts the code of today writes for it."""
    stage = recipe.stages[-1]
    examples = stream(documents(held_out=False), seed=recipe.seed, chunk=0, designs=recipe.designs_per_chunk)
    texts = json.dumps([PIECES, ordinary_words(), stage.plays, [example.parts for example in examples]])
    return {"recipe": as_json(recipe), "texts": hashlib.sha256(texts.encode()).hexdigest()[:16]}


def refuse_other_work(work: Path, wanted: Mapping[str, Any]) -> None:
    """Raise `UserError` when `work` holds a build of something else: going on would mix the two, beginning anew would throw it away."""
    if not any((work / name).exists() for name in _WORK_FILES):
        return
    try:
        found = json.loads((work / ORIGIN).read_text(encoding="utf-8"))
        before, now = dict(found["recipe"]), wanted["recipe"]
        told = [
            f"{n} {before.get(n)} there, {now.get(n)} now"
            for n in sorted({*before, *now})
            if before.get(n) != now.get(n)
        ]
        if found["texts"] != wanted["texts"] and not told:
            told = ["the code writes other training texts than it did then"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        told = [f"{ORIGIN}, which says whose it is, is not readable ({error})"]
    if told:
        raise UserError(
            f"{work} holds an unfinished build that is not this recipe's: {'; '.join(told)}. Give another --work, or --anew to throw it "
            "away and begin again."
        )


def build(recipe: Recipe, *, work: Path, out: Path, processes: int, anew: bool = False) -> dict[str, Any]:
    """Make the model directory `out`, continuing from `work` where a build was interrupted; returns the report.

    Raises `UserError` when `work` holds the build of another recipe, unless it is to be made `anew`.
    """
    wanted = origin(recipe)
    if anew:
        for name in _WORK_FILES:
            (work / name).unlink(missing_ok=True)
    refuse_other_work(work, wanted)
    work.mkdir(parents=True, exist_ok=True)
    (work / ORIGIN).write_text(
        json.dumps(wanted, indent=1) + "\n", encoding="utf-8"
    )  # the same, or there is nothing else
    if not (work / "tokenizer.json").exists():
        train_tokenizer(tokenizer_texts(recipe), ordinary_words()).save_pretrained(str(work))
    meeting = work / "meeting"
    meeting.unlink(missing_ok=True)
    spawn: Any = torch.multiprocessing.spawn  # type: ignore[attr-defined]
    spawn(_train, args=(recipe, work, out, processes, meeting), nprocs=processes, daemon=True)
    report: dict[str, Any] = json.loads((out / "build.json").read_text(encoding="utf-8"))
    return report


def _train(rank: int, recipe: Recipe, work: Path, out: Path, ranks: int, meeting: Path) -> None:
    """One process of the build; rank 0 saves and reports."""
    torch.set_num_threads(1)
    if ranks > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=meeting.absolute().as_uri(), rank=rank, world_size=ranks
        )
    training = Training(recipe, load_tokenizer(work), rank=rank, ranks=ranks)
    resumed = training.load(work / "state.pt")
    parameters = sum(p.numel() for p in training.model.parameters())
    if rank == 0:
        _say(
            f"{'continuing at' if resumed else 'starting at'} step {training.step} of {recipe.steps}; {parameters} parameters",
        )
    while training.step < recipe.steps:
        began = time.monotonic()
        training.run_chunk(training.chunk)
        training.chunk += 1
        training.wall_s += time.monotonic() - began
        rate = training.tokens / training.wall_s
        if rank == 0:
            _say(
                f"step {training.step}/{recipe.steps}  loss {training.loss:.4f}  {rate:.0f} tokens/s  {training.wall_s:.0f} s",
            )
            if training.chunk % 5 == 0 or training.step >= recipe.steps:
                training.save(work / "state.pt")
    if rank == 0:
        training.model.save_pretrained(str(out), max_shard_size="1GB")
        (out / "model.safetensors").chmod(0o644)
        training.tokenizer.save_pretrained(str(out))
        report = {
            "recipe": as_json(recipe), "parameters": parameters, "vocabulary": len(training.tokenizer), "tokens": training.tokens,
            "wall_s": round(training.wall_s), "processes": ranks, "last_loss": round(training.loss, 4),
        }  # fmt: skip
        (out / "build.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if ranks > 1:
        torch.distributed.destroy_process_group()


def _say(text: str) -> None:
    """One line of progress, visible at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
