"""Lightning: torchrun --nproc_per_node 2 with_lightning.py. The strategy makes the
DistributedDataParallel: attach where training starts."""

import lightning
import torch

import rill.torch
from task import Pairs, model_of, report


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model, self.losses = model_of(), []

    def training_step(self, batch, number):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Sparse(lightning.Callback):
    def on_train_start(self, trainer, module):
        self.state = rill.torch.attach(
            trainer.strategy.model, "topk", density=0.01,
            optimizer=trainer.optimizers[0], warmup_steps=5,
        )  # fmt: skip

    def on_train_end(self, trainer, module):
        report(module.losses, self.state)


trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, callbacks=[Sparse()],
    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(Module(), torch.utils.data.DataLoader(Pairs(), batch_size=64))
