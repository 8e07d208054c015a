"""Other engines, measured in their own process and virtual environment, one repetition whenever the benchmark asks for it.

    python _rivals.py vllm|trl MODEL_DIRECTORY fp32|bf16 THREADS < orders > measurements

Imports nothing of this repository, so that the other environment needs only its own packages. Each line in is one order as JSON; each line
out is {"cpu_s": …, "wall_s": …}; the first says {"ready": …}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

_ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)  # what libraries print must not get between the answers
os.dup2(2, 1)


def answer(**values: Any) -> None:
    _ANSWERS.write(json.dumps(values) + "\n")
    _ANSWERS.flush()


def measured(action: Any) -> dict[str, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    action()
    return {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}


def vllm(directory: str, dtype: str) -> None:
    """Orders: {"prompts": [[ids]], "limits": [new tokens]}."""
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
                   "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}  # fmt: skip
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=directory, dtype={"fp32": "float32", "bf16": "bfloat16"}[dtype], max_model_len=1024, enforce_eager=True,
        max_num_seqs=128, seed=0, enable_prefix_caching=True, skip_tokenizer_init=True,
    )  # fmt: skip
    answer(ready="vllm")
    for line in sys.stdin:
        order = json.loads(line)
        settings = [
            # Without a seed each: when prompts go through in pieces, this version takes back a CPU generator's draws and fails.
            SamplingParams(temperature=1.0, max_tokens=n, min_tokens=n, ignore_eos=True, logprobs=0, detokenize=False)
            for n in order["limits"]
        ]
        prompts = [{"prompt_token_ids": ids} for ids in order["prompts"]]
        engine.reset_prefix_cache()
        answer(**measured(lambda p=prompts, s=settings: engine.generate(p, s, use_tqdm=False)))


def trl(directory: str, dtype: str) -> None:
    """First line: {"prompts": [texts], "group": n, "new": tokens}; then one {} per step."""
    first = json.loads(sys.stdin.readline())
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class OneStepPerOrder(TrainerCallback):
        def on_step_begin(self, arguments: Any, state: Any, control: Any, **unused: Any) -> None:
            if not sys.stdin.readline():
                os._exit(0)
            self.cpu, self.wall = time.process_time(), time.perf_counter()

        def on_step_end(self, arguments: Any, state: Any, control: Any, **unused: Any) -> None:
            answer(cpu_s=time.process_time() - self.cpu, wall_s=time.perf_counter() - self.wall)

    def reward(completions: list[str], **unused: Any) -> list[float]:
        return [float(len(text) % 7) for text in completions]

    size = len(first["prompts"]) * first["group"]
    trainer = GRPOTrainer(
        model=directory,
        processing_class=AutoTokenizer.from_pretrained(directory),
        reward_funcs=reward,
        train_dataset=Dataset.from_list([{"prompt": text} for text in first["prompts"]] * 50),
        args=GRPOConfig(
            output_dir=os.path.join(directory, "trl"), use_cpu=True, bf16=dtype == "bf16", report_to="none", save_strategy="no",
            per_device_train_batch_size=size, num_generations=first["group"], max_completion_length=first["new"], max_steps=40,
            temperature=1.0, beta=0.0, learning_rate=1e-6, disable_tqdm=True, gradient_checkpointing=False,
            generation_kwargs={"min_new_tokens": first["new"]},
        ),
        callbacks=[OneStepPerOrder()],
    )  # fmt: skip
    answer(ready="trl")
    trainer.train()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = sys.argv[4]  # vLLM takes all cores otherwise, and its threads spin
    {"vllm": vllm, "trl": trl}[sys.argv[1]](sys.argv[2], sys.argv[3])
