"""A LlamaForCausalLM of two layers, each recomputed, trained for six steps by PaddleFormers' own trainer.

python former.py OUTPUT_FOLDER
"""

import sys

import paddle
from paddleformers.trainer import Trainer, TrainingArguments
from paddleformers.transformers import LlamaConfig, LlamaForCausalLM

from ctx_tracer.integrations.trainer import CtxTracerCallback

RECOMPUTE = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


class Data(paddle.io.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        ids = [(index * 7 + position) % 64 for position in range(16)]
        return {"input_ids": ids, "labels": ids}


def collate(rows):
    return {name: paddle.to_tensor([row[name] for row in rows]) for name in rows[0]}


config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=32,
)
config.fuse_rms_norm = False  # it has no CPU kernel
config.use_cache = False
for name, value in RECOMPUTE.items():
    setattr(config, name, value)
arguments = TrainingArguments(
    output_dir=sys.argv[1],
    max_steps=6,
    per_device_train_batch_size=2,
    device="cpu",
    amp_master_grad=False,
    save_steps=3,
    report_to=[],
)
for name, value in RECOMPUTE.items():
    setattr(arguments, name, value)
trainer = Trainer(
    model=LlamaForCausalLM(config),
    args=arguments,
    train_dataset=Data(),
    data_collator=collate,
    callbacks=[CtxTracerCallback()],
)
trainer.train()
