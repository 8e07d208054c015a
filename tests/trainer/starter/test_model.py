"""The committed weights: an ordinary model directory that does its job through the real sandbox."""

from __future__ import annotations

import json

import pytest
import torch

from sandbox import Sandbox
from trainer.starter.__main__ import MODEL_DIRECTORY
from trainer.starter.build import Row, batches, new_model, weights_of
from trainer.starter.measure import Bench, Settings
from trainer.starter.muon import Muon, orthogonal
from trainer.starter.recipe import Recipe, Stage, as_json, learning_rate
from trainer.starter.tokens import END, load_tokenizer
from trainer.weights import load_config, load_model


def test_the_committed_weights_load_and_are_small():
    files = list(MODEL_DIRECTORY.glob("*.safetensors"))
    assert len(files) == 1
    assert files[0].stat().st_size <= 12 * 1024**2
    config = load_config(MODEL_DIRECTORY)
    assert config.model_type == "qwen3"
    model = load_model(MODEL_DIRECTORY, dtype=torch.float32, device="cpu")
    tokenizer = load_tokenizer(MODEL_DIRECTORY)
    assert model.config.vocab_size == len(tokenizer)
    assert tokenizer.convert_tokens_to_ids(END) == tokenizer.eos_token_id == model.config.eos_token_id


def test_the_report_beside_the_weights_names_the_recipe_of_this_code():
    report = json.loads((MODEL_DIRECTORY / "build.json").read_text())
    assert report["recipe"] == as_json(Recipe())
    assert report["parameters"] == sum(
        p.numel() for p in load_model(MODEL_DIRECTORY, dtype=torch.float32, device="cpu").parameters()
    )


def test_the_same_recipe_starts_from_the_same_weights():
    first, second = (new_model(Recipe(layers=1), pad_id=0, end_id=2, vocab=300) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_half_of_the_heads_begin_by_writing_what_they_look_at():
    recipe = Recipe(layers=2)
    model = new_model(recipe, pad_id=0, end_id=2, vocab=300)
    attention, size = model.model.layers[1].self_attn, recipe.head_dim
    copied = attention.o_proj.weight[:, :size] @ attention.v_proj.weight[:size]
    assert torch.linalg.svdvals(copied / recipe.copy_gain).round(decimals=3).tolist() == [1.0] * size + [0.0] * (
        recipe.hidden - size
    )
    table = model.model.embed_tokens.weight.detach()
    own = table - table.mean(dim=0)  # without the direction that all pieces share
    assert abs(float(own.std()) - recipe.embedding_std) < 0.1 * recipe.embedding_std


def test_batches_hold_every_row_once_and_stay_under_their_budget():
    import random

    rows = [Row([n] * n, [1] * n, "play") for n in (5, 90, 40, 7, 100, 33, 64)]
    made = batches(rows, batch_tokens=120, rng=random.Random(0))
    assert sorted(len(row.ids) for batch in made for row in batch) == [5, 7, 33, 40, 64, 90, 100]
    assert all(max(len(row.ids) for row in batch) * len(batch) <= 120 for batch in made)


def test_context_counts_in_designs_only():
    assert weights_of(Row([1, 2, 3], [0, 0, 1], "design"), 0.2, 7.0) == [0.2, 0.2, 1.0]
    assert weights_of(Row([1, 2, 3], [0, 0, 1], "play"), 0.2, 7.0) == [0.0, 0.0, 7.0]


def test_the_learning_rate_warms_up_and_is_linear_in_every_stage():
    recipe = Recipe(warmup_steps=10, stages=(Stage(100, (0, 0), 1.5, 1.0, 0.5), Stage(300, (1, 2), 1.5, 0.8, 0.0)))
    rates = [round(learning_rate(recipe, step), 3) for step in (0, 9, 50, 99, 100, 200, 299)]
    assert rates == [0.1, 0.955, 0.75, 0.505, 0.8, 0.4, 0.004]
    assert recipe.steps == 300
    assert [recipe.stage(step)[0].plays for step in (0, 99, 100, 299, 300)] == [(0, 0), (0, 0), (1, 2), (1, 2), (1, 2)]


def test_an_orthogonalised_matrix_has_singular_values_near_one():
    torch.manual_seed(0)
    for shape in ((3, 16, 48), (2, 48, 16)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
        assert float(values.min()) > 0.5
        assert float(values.max()) < 1.3


def test_muon_moves_each_singular_value_by_a_step_that_does_not_depend_on_the_gradients_size():
    # 50 steps of 0.1 * 0.2 * sqrt(6) = 0.049 each: the largest singular value falls by about 2.4, whatever the loss is scaled by.
    fallen = []
    for scale in (1.0, 1000.0):
        weight = torch.nn.Parameter(torch.full((4, 6), 3.0) + torch.eye(4, 6))
        optimizer = Muon([weight], lr=0.1, momentum=0.9, weight_decay=0.0)
        before = float(torch.linalg.matrix_norm(weight.detach(), 2))
        for _ in range(50):
            (weight.square().sum() * scale).backward()
            optimizer.step()
            optimizer.zero_grad()
        fallen.append(before - float(torch.linalg.matrix_norm(weight.detach(), 2)))
    assert 2.449 * 0.65 < fallen[0] < 2.449 * 1.25
    assert abs(fallen[0] - fallen[1]) < 0.05


@pytest.mark.slow
def test_most_of_what_the_model_writes_passes_all_gates_and_its_hints_do_not_leak():
    torch.set_num_threads(1)
    with Sandbox() as sandbox:
        bench = Bench(MODEL_DIRECTORY, sandbox, Settings(plays=4, max_turns=10, seed=11), threads=1)
        designs = bench.designs(20, [])
        passed = [design for design in designs if not design.failed]
        assert len(passed) >= 14, [design.failed for design in designs]
        assert len({design.code for design in passed}) >= 0.9 * len(passed)
        bench.give_hints(passed)
        assert sum(bool(design.leak) for design in passed) <= 1
        bench.play(passed[:8])
        assert all(len(design.won[hinted]) == 4 for design in passed[:8] for hinted in (False, True))
