from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from tests.trainer.tiny_model import save_tiny_model, tiny_tokenizer
from trainer.config import LossConfig, OptimConfig
from trainer.errors import InfrastructureError, UserError
from trainer.learn.engine import TrainRow
from trainer.learn.packed import register_packed_attention
from trainer.learn.plain import PlainLearner
from trainer.rollout.builtin import BuiltinSampler
from trainer.rollout.engine import Sampled, SampleRequest
from trainer.weights import load_model

OPTIM = OptimConfig(learning_rate=1e-3)


def random_rows(count: int = 9, seed: int = 0, *, gap: float = 0.3) -> list[TrainRow]:
    """Rows of both roles, with masked stretches, an empty mask, a zero advantage, and a thinking episode of two rows."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        length = rng.randint(2, 25)
        mask = tuple(int(rng.random() < 0.7) for _ in range(length)) if i != 4 else (0,) * length
        rows.append(
            TrainRow(
                sample=f"s{i - 1 if i == 3 else i}",
                role="designer" if i in (0, 5) else "agent",
                prompt_ids=tuple(rng.randint(3, 390) for _ in range(rng.randint(1, 20))),
                token_ids=tuple(rng.randint(3, 390) for _ in range(length)),
                mask=mask,
                sampler_logprobs=tuple(-(6 + rng.uniform(-gap, gap)) * bit for bit in mask),
                advantage=0.0 if i == 6 else rng.gauss(0, 1),
                temperature=0.6 if i in (0, 5) else 0.9,
                rollout=0 if i == 0 else 4,
                weight=0.5 if i in (2, 3) else 1.0,
            )
        )
    return rows


def learner(
    directory: Path,
    *,
    loss: LossConfig | None = None,
    optim: OptimConfig = OPTIM,
    double: bool = False,
    dtype: str = "fp32",
) -> PlainLearner:
    if not double:
        return PlainLearner.from_directory(
            directory,
            loss=loss or LossConfig(),
            optim=optim,
            dtype=dtype,
            device="cpu",
            seed=5,
            reference_directory=directory,
        )
    attention = register_packed_attention()

    def model() -> Any:
        return load_model(directory, dtype=torch.float64, device="cpu", attention=attention)

    return PlainLearner(
        model(), None, loss=loss or LossConfig(), optim=optim, seed=5, reference=model().requires_grad_(False)
    )


def weights_of(trained: PlainLearner) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trained.weights()}


def largest_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max((a[name].double() - b[name].double()).abs().max().item() for name in a)


def plain_autograd_loss(
    model: Any, rows: list[TrainRow], config: LossConfig, reference: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of spec 8 written out row by row with the library's own attention: (loss, mean over samples of entropy)."""

    def logprobs(network: Any, row: TrainRow) -> tuple[torch.Tensor, torch.Tensor]:
        logits = network(torch.tensor([row.prompt_ids + row.token_ids])).logits[0, len(row.prompt_ids) - 1 : -1]
        logps = torch.log_softmax(logits / row.temperature, -1)
        return logps.gather(1, torch.tensor(row.token_ids)[:, None])[:, 0], -(logps.exp() * logps).sum(-1)

    samples = len({(row.role, row.sample) for row in rows})
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        mask = torch.tensor(row.mask, dtype=torch.bool)
        if not mask.any():
            continue
        new, entropy = logprobs(model, row)
        old = new.detach()
        with torch.no_grad():
            ref = logprobs(reference, row)[0]
        sampler = torch.tensor(row.sampler_logprobs, dtype=torch.float64)
        importance = torch.exp(old - sampler).clamp(max=config.tis_cap)
        ratio = torch.exp(new - old)
        surrogate = torch.minimum(
            ratio * row.advantage, ratio.clamp(1 - config.clip_low, 1 + config.clip_high) * row.advantage
        )
        kl = (torch.exp(ref - new) - 1 - (ref - new)).clamp(-10, 10)
        per_token = -surrogate * importance + config.kl_coef * kl - config.entropy_coef * entropy
        total = total + row.weight * per_token[mask].mean() / samples
    return total, total.detach()


@pytest.mark.parametrize(
    "config",
    [LossConfig(), LossConfig(kl_coef=0.05, entropy_coef=0.01, tis_cap=1.1)],
    ids=["default", "kl and entropy"],
)
def test_loss_and_gradient_equal_plain_autograd_row_by_row(
    model_directory: Path, tmp_path: Path, config: LossConfig
) -> None:
    other = save_tiny_model(tmp_path, seed=3)
    rows = random_rows()
    reference = load_model(other, dtype=torch.float64, device="cpu")
    plain = load_model(model_directory, dtype=torch.float64, device="cpu")
    expected, _ = plain_autograd_loss(plain, rows, config, reference)
    expected.backward()  # type: ignore[no-untyped-call]
    attention = register_packed_attention()
    ours = PlainLearner(
        load_model(model_directory, dtype=torch.float64, device="cpu", attention=attention),
        None,
        loss=config,
        optim=OptimConfig(learning_rate=1e-3, grad_clip=1e9, micro_batch_tokens=64),
        seed=0,
        reference=load_model(other, dtype=torch.float64, device="cpu", attention=attention),
    )
    metrics = ours.update(rows, rollout=4)
    assert metrics["loss/total"] == pytest.approx(expected.item(), abs=1e-10)
    norm = math.sqrt(sum(p.grad.pow(2).sum().item() for p in plain.parameters()))
    assert metrics["optim/grad_norm"] == pytest.approx(norm, rel=1e-9)
    for (name, mine), theirs in zip(ours._model.named_parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None
        assert (mine.grad - theirs.grad).abs().max() < 1e-9 * max(1.0, norm), name


def test_the_update_does_not_depend_on_micro_batches_packing_or_row_order(model_directory: Path) -> None:
    rows = random_rows()
    config = LossConfig(kl_coef=0.02)
    results = []
    for budget, order in ((16384, 0), (64, 0), (64, 1), (120, 2)):
        shuffled = random.Random(order).sample(rows, len(rows))
        trained = learner(
            model_directory, loss=config, optim=OptimConfig(learning_rate=1e-3, micro_batch_tokens=budget), double=True
        )
        metrics = trained.update(shuffled, rollout=4)
        trained.update(shuffled, rollout=5)
        results.append((metrics, weights_of(trained)))
    first_metrics, first_weights = results[0]
    for metrics, weights in results[1:]:
        assert largest_difference(first_weights, weights) < 1e-6
        for name, value in first_metrics.items():
            assert metrics[name] == pytest.approx(value, abs=1e-6), name


def test_padding_tokens_of_observations_get_no_gradient(model_directory: Path) -> None:
    base = TrainRow("a", "agent", (5, 6), (7, 8, 9, 10), (1, 0, 0, 0), (-6.0, 0.0, 0.0, 0.0), 1.0, 1.0, 0)
    tail = dataclasses.replace(base, token_ids=(7, 20, 21, 22))
    cut = dataclasses.replace(base, token_ids=(7,), mask=(1,), sampler_logprobs=(-6.0,))
    weights = []
    for row in (base, tail, cut):
        trained = learner(model_directory)
        trained.update([row], rollout=0)
        weights.append(weights_of(trained))
    assert largest_difference(weights[0], weights[1]) == 0.0
    assert largest_difference(weights[0], weights[2]) == 0.0


def sampled_rows(directory: Path, count: int = 8, temperature: float = 0.7) -> list[TrainRow]:
    sampler = BuiltinSampler.from_directory(
        directory, dtype="fp32", device="cpu", threads=1, context_tokens=512, max_batch=4
    )
    requests = [SampleRequest(tuple(range(10, 20 + i % 3)), 20, temperature, i, ()) for i in range(count)]
    rows = []
    for i, (request, reply) in enumerate(zip(requests, sampler.generate(requests), strict=True)):
        assert isinstance(reply, Sampled)
        ones = (1,) * len(reply.token_ids)
        rows.append(
            TrainRow(
                f"e{i}",
                "agent",
                request.prompt_ids,
                reply.token_ids,
                ones,
                reply.logprobs,
                1.0 if i % 2 else -1.0,
                temperature,
                4,
            )
        )
    return rows


def test_sampler_and_learner_agree_on_unchanged_weights_and_the_first_ratio_is_one(model_directory: Path) -> None:
    metrics = learner(model_directory).update(sampled_rows(model_directory), rollout=4)
    assert 0 < metrics["sampler_gap/logp_abs_max"] < 1e-4
    assert metrics["sampler_gap/logp_abs_mean"] < 1e-5
    assert metrics["sampler_gap/kl_k3"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["policy/ratio_mean"] == metrics["policy/ratio_max"] == 1.0
    assert metrics["policy/clip_frac_low"] == metrics["policy/clip_frac_high"] == metrics["sampler_gap/tis_frac"] == 0.0
    assert metrics["loss/entropy"] > 0


def test_a_pushed_update_keeps_sampler_and_learner_together(model_directory: Path) -> None:
    trained = learner(model_directory)
    trained.update(sampled_rows(model_directory), rollout=4)
    sampler = BuiltinSampler.from_directory(
        model_directory, dtype="fp32", device="cpu", threads=1, context_tokens=512, max_batch=4
    )
    sampler.load_weights(trained.weights())
    request = SampleRequest(tuple(range(10, 30)), 30, 0.7, 1, ())
    (reply,) = sampler.generate([request])
    assert isinstance(reply, Sampled)
    row = TrainRow("x", "agent", request.prompt_ids, reply.token_ids, (1,) * 30, reply.logprobs, 1.0, 0.7, 5)
    assert trained.update([row], rollout=5)["sampler_gap/logp_abs_max"] < 1e-4


def test_updates_raise_the_probability_of_rewarded_tokens(model_directory: Path) -> None:
    rows = sampled_rows(model_directory)
    trained = learner(model_directory, optim=OptimConfig(learning_rate=3e-3, minibatches=1))
    rewarded = [row for row in rows if row.advantage > 0]

    def mean_logprob() -> float:
        packs = trained._packs(rewarded, 4)
        return sum(trained._score(trained._model, pack)[0].sum().item() for pack in packs)

    before = mean_logprob()
    for _ in range(3):
        trained.update(rows, rollout=4)
    assert mean_logprob() > before + 1.0


def test_several_minibatches_and_epochs_measure_the_ratio_against_the_start_of_the_update(
    model_directory: Path,
) -> None:
    rows = sampled_rows(model_directory)
    trained = learner(model_directory, optim=OptimConfig(learning_rate=2e-2, minibatches=2, epochs=3))
    metrics = trained.update(rows, rollout=4)
    assert metrics["policy/ratio_max"] > 1.28
    assert metrics["policy/clip_frac_high"] > 0
    assert metrics["sampler_gap/logp_abs_max"] < 1e-4


def test_designer_samples_of_older_weights_do_not_count_as_sampler_gap(model_directory: Path) -> None:
    rows = sampled_rows(model_directory)
    stale = dataclasses.replace(
        rows[0], role="designer", rollout=0, sampler_logprobs=tuple(p - 3.0 for p in rows[0].sampler_logprobs)
    )
    metrics = learner(model_directory).update([*rows, stale], rollout=4)
    assert metrics["sampler_gap/logp_abs_max"] < 1e-4
    assert metrics["sampler_gap/tis_frac"] == pytest.approx(1 / 9)


def test_temperature_is_each_rows_own(model_directory: Path) -> None:
    rows = [*sampled_rows(model_directory, temperature=0.6), *sampled_rows(model_directory, temperature=1.1)]
    rows = [dataclasses.replace(row, sample=str(i)) for i, row in enumerate(rows)]
    assert learner(model_directory).update(rows, rollout=4)["sampler_gap/logp_abs_max"] < 1e-4


@pytest.mark.parametrize("steps", [1, 2])
def test_an_update_that_is_not_finite_is_an_error_and_leaves_weights_and_optimiser_unchanged(
    model_directory: Path, steps: int
) -> None:
    optim = OptimConfig(learning_rate=1e-3, minibatches=steps)
    trained, undisturbed = learner(model_directory, optim=optim), learner(model_directory, optim=optim)
    good = sampled_rows(model_directory)
    for each in (trained, undisturbed):
        each.update(good, rollout=3)
    before = weights_of(trained)
    broken = [dataclasses.replace(row, advantage=math.inf) if row is good[0] else row for row in good]
    with pytest.raises(InfrastructureError, match="not finite"):
        trained.update(broken, rollout=4)
    assert largest_difference(before, weights_of(trained)) == 0.0
    undisturbed._generator.set_state(trained._generator.get_state())
    for each in (trained, undisturbed):
        each.update(good, rollout=5)
    assert largest_difference(weights_of(trained), weights_of(undisturbed)) == 0.0


@pytest.mark.parametrize(
    "optim", [OPTIM, OptimConfig(learning_rate=1e-3, minibatches=2, epochs=2)], ids=["one step", "four steps"]
)
def test_five_updates_a_restart_and_five_more_equal_ten_bit_for_bit(
    model_directory: Path, tmp_path: Path, optim: OptimConfig
) -> None:
    batches = [random_rows(seed=i) for i in range(10)]
    straight = learner(model_directory, optim=optim)
    straight_metrics = [straight.update(batch, rollout=4) for batch in batches]
    first = learner(model_directory, optim=optim)
    for batch in batches[:5]:
        first.update(batch, rollout=4)
    first.save_model(tmp_path / "model")
    torch.save(first.state(), tmp_path / "state.pt")
    second = learner(model_directory, optim=optim)
    second.load_state(tmp_path / "model", torch.load(tmp_path / "state.pt", weights_only=True))
    second_metrics = [second.update(batch, rollout=4) for batch in batches[5:]]
    assert largest_difference(weights_of(straight), weights_of(second)) == 0.0
    assert second_metrics == straight_metrics[5:]
    assert second.describe()["updates"] == 10


def test_a_saved_model_is_an_ordinary_directory_with_tokenizer(model_directory: Path, tmp_path: Path) -> None:
    trained = learner(model_directory)
    trained.update(random_rows(), rollout=4)
    trained.save_model(tmp_path)
    loaded = load_model(tmp_path, dtype=torch.float32, device="cpu")
    assert largest_difference(weights_of(trained), dict(loaded.named_parameters())) == 0.0
    assert (tmp_path / "tokenizer.json").is_file()
    assert (tmp_path / "chat_template.jinja").is_file()
    assert "spadework" not in (tmp_path / "config.json").read_text()


def test_bf16_learns_close_to_fp32_and_keeps_fp32_weights(model_directory: Path) -> None:
    rows = random_rows()
    full, half = learner(model_directory), learner(model_directory, dtype="bf16")
    a, b = full.update(rows, rollout=4), half.update(rows, rollout=4)
    assert b["loss/total"] == pytest.approx(a["loss/total"], rel=0.1, abs=0.05)
    assert all(tensor.dtype == torch.float32 for _, tensor in half.weights())
    assert half.describe()["dtype"] == "bfloat16"


def test_an_update_without_rows_changes_nothing(model_directory: Path) -> None:
    trained = learner(model_directory)
    before = weights_of(trained)
    metrics = trained.update([], rollout=0)
    assert (metrics["learn/rows"], metrics["loss/total"]) == (0.0, None)
    assert largest_difference(before, weights_of(trained)) == 0.0


def test_the_kl_reference_is_the_start_of_the_run_not_of_the_update(model_directory: Path) -> None:
    trained = learner(model_directory, loss=LossConfig(kl_coef=0.01), optim=OptimConfig(learning_rate=1e-2))
    rows = sampled_rows(model_directory)
    assert trained.update(rows, rollout=4)["loss/kl"] == pytest.approx(0.0, abs=1e-6)
    assert trained.update(rows, rollout=5)["loss/kl"] > 1e-4


def test_a_large_vocabulary_done_in_pieces_gives_the_same_update(
    model_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, pieces = learner(model_directory, double=True), learner(model_directory, double=True)
    rows = random_rows()
    expected = whole.update(rows, rollout=4)
    monkeypatch.setattr("trainer.learn.packed._LOGITS_IN_MEMORY", 10)
    monkeypatch.setattr("trainer.learn.packed._PIECE", 400 * 7)
    got = pieces.update(rows, rollout=4)
    assert got["loss/total"] == pytest.approx(expected["loss/total"], abs=1e-12)
    assert largest_difference(weights_of(whole), weights_of(pieces)) < 1e-9


def test_activation_checkpointing_gives_the_same_update(model_directory: Path) -> None:
    plain = learner(model_directory)
    saving = PlainLearner.from_directory(
        model_directory, loss=LossConfig(), optim=OPTIM.model_copy(update={"activation_checkpointing": True}), dtype="fp32",
        device="cpu", seed=5, reference_directory=model_directory,
    )  # fmt: skip
    assert saving._model.is_gradient_checkpointing and not plain._model.is_gradient_checkpointing
    for each in (plain, saving):
        each.update(random_rows(), rollout=4)
    assert largest_difference(weights_of(plain), weights_of(saving)) < 1e-6


def saved(directory: Path, kind: Any, config: Any) -> Path:
    """A random model of another architecture with the tiny tokenizer."""
    torch.manual_seed(0)
    model = kind(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return directory


SIZES = {
    "vocab_size": 400, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (GraniteForCausalLM, GraniteConfig(**SIZES, logits_scaling=4.0)),
        (CohereForCausalLM, CohereConfig(**SIZES, logit_scale=0.25)),
        (Gemma2ForCausalLM, Gemma2Config(**SIZES, head_dim=8, final_logit_softcapping=5.0)),
    ],
)
def test_a_model_whose_log_probs_the_packed_pass_does_not_give_is_refused(
    kind: Any, config: Any, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=config.model_type):
        learner(saved(tmp_path, kind, config))


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (LlamaForCausalLM, LlamaConfig(**SIZES, attention_dropout=0.5)),
        (GPT2LMHeadModel, GPT2Config(vocab_size=400, n_embd=32, n_layer=2, n_head=4, n_positions=128)),  # dropout 0.1
    ],
)
@pytest.mark.parametrize("recompute", [False, True])
def test_a_model_with_dropout_is_trained_as_it_is_sampled(
    recompute: bool, kind: Any, config: Any, tmp_path: Path
) -> None:
    directory = saved(tmp_path, kind, config)
    optim = OptimConfig(learning_rate=1e-3, activation_checkpointing=recompute)
    plain = load_model(directory, dtype=torch.float32, device="cpu").eval()
    rows = [row for row in random_rows() if any(row.mask)]
    with torch.no_grad():
        for place, row in enumerate(rows):
            logits = plain(torch.tensor([row.prompt_ids + row.token_ids])).logits[0, len(row.prompt_ids) - 1 : -1]
            own = torch.log_softmax(logits / row.temperature, -1).gather(1, torch.tensor(row.token_ids)[:, None])[:, 0]
            rows[place] = dataclasses.replace(row, sampler_logprobs=tuple(own.tolist()))
    metrics = learner(directory, optim=optim).update(rows, rollout=4)
    assert metrics["sampler_gap/logp_abs_max"] is not None and metrics["sampler_gap/logp_abs_max"] < 1e-4


@pytest.mark.parametrize(("recompute", "passes"), [(False, 1), (True, 2)])
def test_activation_checkpointing_recomputes_each_layer_once(
    recompute: bool, passes: int, model_directory: Path
) -> None:
    trained = learner(model_directory, optim=OptimConfig(activation_checkpointing=recompute))
    seen: list[int] = []
    trained._model.model.layers[0].self_attn.register_forward_pre_hook(lambda *_: seen.append(1))
    rows = [row for row in random_rows(2) if row.advantage]
    trained.update(rows, rollout=4)
    assert len(seen) == passes
