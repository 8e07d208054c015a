from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM

from tests.trainer.learn.test_plain_learner import OPTIM, largest_difference, random_rows, sampled_rows, weights_of
from tests.trainer.tiny_model import save_tiny_model, tiny_tokenizer
from trainer.config import LoraConfig, LossConfig, OptimConfig, RunConfig
from trainer.engines import open_engines
from trainer.errors import InfrastructureError, UserError
from trainer.learn.engine import TrainRow
from trainer.learn.plain import PlainLearner
from trainer.presets import load_preset, with_overrides
from trainer.rollout.builtin import BuiltinSampler
from trainer.rollout.engine import Sampled, SampleRequest
from trainer.rollout.huggingface import HuggingFaceSampler
from trainer.weights import load_model

LORA = LoraConfig(rank=4, alpha=16.0)


def lora_learner(
    directory: Path, *, lora: LoraConfig | None = LORA, loss: LossConfig | None = None, optim: OptimConfig = OPTIM, dtype: Any = "fp32"
) -> PlainLearner:  # fmt: skip
    return PlainLearner.from_directory(
        directory, loss=loss or LossConfig(), optim=optim, dtype=dtype, device="cpu", seed=5,
        reference_directory=directory, lora=lora,
    )  # fmt: skip


def start_weights(directory: Path) -> dict[str, torch.Tensor]:
    return dict(load_model(directory, dtype=torch.float32, device="cpu").named_parameters())


def test_before_any_update_the_merged_weights_are_the_start_weights_under_their_ordinary_names(
    model_directory: Path,
) -> None:
    assert largest_difference(weights_of(lora_learner(model_directory)), start_weights(model_directory)) == 0.0


def test_an_update_adds_a_change_of_the_adapters_rank_to_the_linear_layers_and_to_nothing_else(
    model_directory: Path,
) -> None:
    trained = lora_learner(model_directory, optim=OptimConfig(learning_rate=1e-2))
    for _ in range(2):
        trained.update(random_rows(), rollout=4)
    before = start_weights(model_directory)
    changed = set()
    for name, tensor in trained.weights():
        change = tensor - before[name]
        if change.abs().max() == 0:
            continue
        changed.add(name.split(".")[-2])
        # 4 · (largest singular value's rounding): the fifth is nothing beside the first.
        values = torch.linalg.svdvals(change.double())
        assert values[4] < 1e-5 * values[0], name
    assert changed == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_the_change_is_scaled_by_alpha_over_rank(model_directory: Path) -> None:
    trained = lora_learner(model_directory)
    layer = trained._model.model.layers[0].self_attn.q_proj
    with torch.no_grad():
        layer.lora_A["default"].weight.fill_(0.5)
        layer.lora_B["default"].weight.fill_(0.25)
    merged = dict(trained.weights())["model.layers.0.self_attn.q_proj.weight"]
    before = start_weights(model_directory)["model.layers.0.self_attn.q_proj.weight"]
    # 16/4 · (4 ranks of 0.25 · 0.5) = 2.
    assert torch.allclose(merged - before, torch.full_like(merged, 2.0), atol=1e-5)


def test_only_the_named_layers_get_adapters_and_an_unknown_name_is_a_user_error(model_directory: Path) -> None:
    trained = lora_learner(model_directory, lora=LoraConfig(rank=2, modules=("v_proj",)))
    # Two layers; v_proj is 32 -> 2 heads of 16: 2 · (32 + 32) numbers each.
    assert trained.describe()["trained_parameters"] == 2 * 2 * (32 + 32)
    assert trained.describe()["lora_rank"] == 2
    with pytest.raises(UserError, match=r"lora.modules: .*no_such_layer"):
        lora_learner(model_directory, lora=LoraConfig(rank=2, modules=("no_such_layer",)))


def test_sampler_and_learner_agree_on_merged_weights(model_directory: Path) -> None:
    trained = lora_learner(model_directory, optim=OptimConfig(learning_rate=1e-2))
    trained.update(sampled_rows(model_directory), rollout=4)
    sampler = BuiltinSampler.from_directory(
        model_directory, dtype="fp32", device="cpu", threads=1, context_tokens=512, max_batch=4
    )
    before = sampler.generate([SampleRequest(tuple(range(10, 30)), 30, 0.7, 1, ())])
    sampler.load_weights(trained.weights())
    requests = [SampleRequest(tuple(range(10, 30 + i)), 30, 0.7, i, ()) for i in range(4)]
    replies = [r for r in sampler.generate(requests) if isinstance(r, Sampled)]
    assert replies[1] != before[0]
    rows = [
        TrainRow(f"e{i}", "agent", q.prompt_ids, r.token_ids, (1,) * 30, r.logprobs, 1.0, 0.7, 5)
        for i, (q, r) in enumerate(zip(requests, replies, strict=True))
    ]
    assert trained.update(rows, rollout=5)["sampler_gap/logp_abs_max"] < 1e-4


def test_the_kl_reference_is_the_model_with_its_adapters_switched_off(model_directory: Path) -> None:
    loss, optim = LossConfig(kl_coef=0.05), OptimConfig(learning_rate=1e-2)
    one, other = (lora_learner(model_directory, loss=loss, optim=optim) for _ in range(2))
    adapters, other._adapters = other._adapters, None
    other._reference = load_model(model_directory, dtype=torch.float32, device="cpu", attention="spadework_packed")
    rows = sampled_rows(model_directory)
    for _ in range(3):
        metrics, expected = one.update(rows, rollout=4), other.update(rows, rollout=4)
    assert metrics["loss/kl"] == pytest.approx(expected["loss/kl"], rel=1e-5)
    assert metrics["loss/kl"] > 1e-4
    other._adapters = adapters
    assert largest_difference(weights_of(one), weights_of(other)) < 1e-6


@pytest.mark.parametrize("kl_coef", [0.0, 0.02])
def test_three_updates_a_restart_and_three_more_equal_six_bit_for_bit(
    model_directory: Path, tmp_path: Path, kl_coef: float
) -> None:
    loss = LossConfig(kl_coef=kl_coef)
    batches = [random_rows(seed=i) for i in range(6)]
    straight = lora_learner(model_directory, loss=loss)
    straight_metrics = [straight.update(batch, rollout=4) for batch in batches]
    first = lora_learner(model_directory, loss=loss)
    for batch in batches[:3]:
        first.update(batch, rollout=4)
    first.save_model(tmp_path / "model")
    torch.save(first.state(), tmp_path / "state.pt")
    second = lora_learner(model_directory, loss=loss)
    second.load_state(tmp_path / "model", torch.load(tmp_path / "state.pt", weights_only=True))
    assert largest_difference(weights_of(first), weights_of(second)) == 0.0
    assert [second.update(batch, rollout=4) for batch in batches[3:]] == straight_metrics[3:]
    assert largest_difference(weights_of(straight), weights_of(second)) == 0.0


def test_a_saved_model_is_an_ordinary_directory_of_merged_weights(model_directory: Path, tmp_path: Path) -> None:
    trained = lora_learner(model_directory, optim=OptimConfig(learning_rate=1e-2))
    trained.update(random_rows(), rollout=4)
    trained.save_model(tmp_path)
    loaded = load_model(tmp_path, dtype=torch.float32, device="cpu")
    assert largest_difference(weights_of(trained), dict(loaded.named_parameters())) == 0.0
    assert not list(tmp_path.glob("adapter*"))
    assert (tmp_path / "tokenizer.json").is_file()


def test_adapters_of_other_start_weights_or_of_another_rank_are_refused(model_directory: Path, tmp_path: Path) -> None:
    trained = lora_learner(model_directory)
    trained.update(random_rows(), rollout=4)
    trained.save_model(tmp_path / "model")
    state = trained.state()
    other = save_tiny_model(tmp_path / "other", seed=7)
    with pytest.raises(InfrastructureError, match="other start weights"):
        lora_learner(other).load_state(tmp_path / "model", state)
    with pytest.raises(InfrastructureError, match=r"lora\.rank or lora\.modules changed"):
        lora_learner(model_directory, lora=LoraConfig(rank=3)).load_state(tmp_path / "model", state)
    with pytest.raises(UserError, match="trained with adapters"):
        lora_learner(model_directory, lora=None).load_state(tmp_path / "model", state)
    plain = lora_learner(model_directory, lora=None)
    with pytest.raises(UserError, match="trained without adapters"):
        lora_learner(model_directory).load_state(tmp_path / "model", plain.state())


def test_bf16_and_activation_checkpointing_work_with_adapters(model_directory: Path) -> None:
    rows = random_rows()
    exact = lora_learner(model_directory)
    saving = lora_learner(model_directory, optim=OPTIM.model_copy(update={"activation_checkpointing": True}))
    half = lora_learner(model_directory, dtype="bf16")
    expected = exact.update(rows, rollout=4)
    assert saving.update(rows, rollout=4)["optim/grad_norm"] == pytest.approx(expected["optim/grad_norm"], rel=1e-5)
    assert half.update(rows, rollout=4)["loss/total"] == pytest.approx(expected["loss/total"], rel=0.1, abs=0.05)
    assert largest_difference(weights_of(exact), weights_of(saving)) < 1e-6
    assert all(tensor.dtype == torch.float32 for _, tensor in half.weights())


def test_the_settings_reach_the_learner(model_directory: Path) -> None:
    settings = {
        "model.path": str(model_directory),
        "lora.rank": 3,
        "optim.activation_checkpointing": True,
        "engine.threads": 1,
    }
    config: RunConfig = with_overrides(load_preset("tiny"), settings)
    engines = open_engines(config, {})
    assert engines.learner.describe()["lora_rank"] == 3
    assert engines.learner._model.is_gradient_checkpointing  # type: ignore[attr-defined]


SMALL = {
    "vocab_size": 400,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}


@pytest.mark.parametrize("architecture", ["llama", "gpt_neox"])
@pytest.mark.parametrize("lora", [None, LORA], ids=["all weights", "adapters"])
def test_other_architectures_are_sampled_trained_synced_and_saved(
    tmp_path: Path, architecture: str, lora: LoraConfig | None
) -> None:
    torch.manual_seed(1)
    model: Any = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=2, max_position_embeddings=512)),
        "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SMALL, max_position_embeddings=512)),
    }[architecture]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(5.0)
    model.save_pretrained(tmp_path / "start")
    tiny_tokenizer().save_pretrained(tmp_path / "start")
    trained = lora_learner(tmp_path / "start", lora=lora, optim=OptimConfig(learning_rate=1e-2))
    sampler = HuggingFaceSampler.from_directory(
        tmp_path / "start", dtype="fp32", device="cpu", threads=1, context_tokens=256, max_batch=3
    )
    requests = [SampleRequest(tuple(range(10, 14 + 7 * i)), 12, 0.8, i, ()) for i in range(5)]
    for rollout in (1, 2):
        replies = sampler.generate(requests)
        rows = [
            TrainRow(f"e{i}", "agent", q.prompt_ids, r.token_ids, (1,) * 12, r.logprobs, (-1.0) ** i, 0.8, rollout)
            for i, (q, r) in enumerate(zip(requests, replies, strict=True))
            if isinstance(r, Sampled)
        ]
        assert len(rows) == 5
        before = weights_of(trained)
        assert 0 < trained.update(rows, rollout=rollout)["sampler_gap/logp_abs_max"] < 1e-4
        assert largest_difference(before, weights_of(trained)) > 1e-3
        sampler.load_weights(trained.weights())
    trained.save_model(tmp_path / "saved")
    saved = load_model(tmp_path / "saved", dtype=torch.float32, device="cpu")
    assert largest_difference(weights_of(trained), dict(saved.named_parameters())) == 0.0


@pytest.mark.parametrize("module", ["embed_tokens", "lm_head"])
def test_one_end_of_tied_embeddings_alone_is_refused(module: str, model_directory: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"lora.modules: .*{module} shares its weights"):
        lora_learner(model_directory, lora=LoraConfig(rank=2, modules=("q_proj", module)))
    untied = lora_learner(save_tiny_model(tmp_path, tied=False), lora=LoraConfig(rank=2, modules=("lm_head",)))
    assert untied.describe()["lora_rank"] == 2
