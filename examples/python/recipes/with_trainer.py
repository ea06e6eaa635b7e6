"""Hugging Face Trainer: torchrun --nproc_per_node 2 with_trainer.py. It makes the
DistributedDataParallel itself: attach at the first step."""

import tempfile

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import rill.torch
from task import Pairs, model_of, report


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model, self.losses = model_of(), []

    def forward(self, x, labels):
        guess = self.model(x)
        loss = torch.nn.functional.mse_loss(guess, labels)
        self.losses.append(loss.item())
        return {"loss": loss, "logits": guess}


class Rows(Pairs):
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return {"x": x, "labels": y}


class Sparse(TrainerCallback):
    def on_step_begin(self, arguments, progress, control, **kept):
        if not hasattr(self, "state"):
            optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
            self.state = rill.torch.attach(
                trainer.model_wrapped, "topk", density=0.01, optimizer=optimizer, warmup_steps=5
            )


model, sparse = Model(), Sparse()
arguments = TrainingArguments(
    tempfile.mkdtemp(), per_device_train_batch_size=64, num_train_epochs=1, learning_rate=1e-3,
    lr_scheduler_type="constant", use_cpu=True, report_to=[], save_strategy="no",
    logging_strategy="no", disable_tqdm=True, ddp_backend="gloo",
)  # fmt: skip
trainer = Trainer(model, arguments, train_dataset=Rows(), callbacks=[sparse])
trainer.train()
report(model.losses, sparse.state)
