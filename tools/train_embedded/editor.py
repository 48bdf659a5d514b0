"""Train the embedded editor; call again to go on.

python -m tools.train_embedded.editor --work FOLDER [--minutes M]
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from tools.train_embedded import vae as first_stage
from tools.train_embedded.editor_model import (
    autoencoder,
    export,
    pipeline,
    scheduler,
    text_encoder,
    unet,
)
from tools.train_embedded.loop import Trainer
from tools.train_embedded.pool import Pool
from tools.train_embedded.records import LANGUAGES
from tools.train_embedded.start import load_texts, start

if TYPE_CHECKING:
    from tools.train_embedded.loop import Losses
    from tools.train_embedded.start import Start


class Latents:
    """The latents of a pool's pictures, encoded as they come."""

    def __init__(self, vae: Any, pool: Pool) -> None:
        self.vae, self.pool, self.size = vae, pool, 0
        shape = self.encode(torch.zeros(1, dtype=torch.long, device=pool.device)).shape[1:]
        self.values = torch.empty((pool.capacity, *shape), dtype=torch.float16, device=pool.device)

    @torch.no_grad()
    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the latents (B, 4, C, H, W) of the four pictures of each record."""
        images = (
            self.pool.columns["images"][rows].permute(0, 1, 4, 2, 3).flatten(0, 1).float() / 127.5
            - 1
        )
        with torch.autocast(self.pool.device, torch.bfloat16):
            latents: torch.Tensor = self.vae.encode(images).latent_dist.mode()
        by_record: torch.Tensor = latents.unflatten(0, (-1, 4))
        return by_record.half()

    def refresh(self) -> None:
        """Encode what the pool has got since the last time."""
        while self.size < self.pool.size:
            end = min(self.pool.size, self.size + 128)
            self.values[self.size : end] = self.encode(
                torch.arange(self.size, end, device=self.pool.device)
            )
            self.size = end


class Denoising(torch.nn.Module):
    """The text encoder and the denoiser, which are trained together."""

    def __init__(self, encoder: Any, denoiser: Any) -> None:
        super().__init__()
        self.encoder, self.denoiser = encoder, denoiser

    def losses(
        self, pool: Pool, latents: Latents, config: dict[str, Any], empty: torch.Tensor
    ) -> Losses:
        """Mean squared error of v at random times; weighed up where the edit changes something."""
        device, size = pool.device, config["batch"]
        latents.refresh()
        rows = torch.randint(latents.size, (size,), device=device)
        side = torch.randint(2, (size,), device=device)
        source, target = (latents.values[rows, side * 2 + after].float() for after in (0, 1))
        chinese = (torch.rand(size, device=device) < pool.chinese).long()
        prompt = pool.columns["prompt"][rows, side * len(LANGUAGES) + chinese].long()
        chance = torch.rand(size, device=device)
        prompt = torch.where((chance < config["text_dropout"])[:, None], empty, prompt)
        blind = chance < config["image_dropout"]
        image = source * ~blind[:, None, None, None]
        schedule = scheduler()
        times = torch.randint(schedule.config.num_train_timesteps, (size,), device=device)
        noise = torch.randn_like(target)
        noisy = schedule.add_noise(target, noise, times)
        with torch.autocast(device, torch.bfloat16):
            text = self.encoder(prompt)[0]
            found = self.denoiser(torch.cat([noisy, image], dim=1), times, text, return_dict=False)[
                0
            ]
        error = (found.float() - schedule.get_velocity(target, noise, times)).square()
        changed = ((target - source).abs().mean(1, keepdim=True) / 0.2).clamp(max=1)
        weight = 1 + config["changed_weight"] * changed
        return {"v": (error * weight).mean() / weight.mean()}


def main() -> None:
    """Run both stages as far as the time allows; when the last is done, write the weights."""
    given = start("editor", __doc__)
    config, device = given.config, given.device
    texts = load_texts(given.work / "texts")
    data = config["data"]
    pool = Pool(texts, config["seed"], data["capacity"], data["workers"], device)
    pool.wait(data["first"])
    vae = _first_stage(given, pool)
    if vae is None:
        return
    stage = config["unet"]
    encoder = text_encoder(texts.editor, config["text"]).to(device)
    denoiser = unet(vae.config.latent_channels, encoder.config.hidden_size, stage["sizes"])
    model = Denoising(encoder, denoiser.to(device, memory_format=torch.channels_last))
    parts = {"vae": vae, "text_encoder": encoder, "unet": denoiser}
    sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}
    trainer = Trainer(
        model, given.work / "unet", steps=stage["steps"], learning_rate=stage["learning_rate"]
    )
    torch.manual_seed(config["seed"] + trainer.step)  # a later piece makes other draws
    trainer.log(parameters=sizes, records=pool.size)
    empty = torch.tensor(texts.editor("", padding="max_length")["input_ids"], device=device)
    latents = Latents(vae, pool)
    trainer.run(lambda: model.losses(pool, latents, stage, empty), given.stop_at)
    if trainer.done:
        final = trainer.average.module.eval()
        shutil.rmtree(given.out, ignore_errors=True)
        export(pipeline(vae, final.encoder, texts.editor, final.denoiser), given.out)


def _first_stage(given: Start, pool: Pool) -> Any:
    """Train the autoencoder and whiten its latents; return `None` if the time ends before."""
    stage = given.config["vae"]
    vae = autoencoder(stage["sizes"]).to(given.device, memory_format=torch.channels_last)
    trainer = Trainer(
        vae,
        given.work / "vae",
        steps=stage["steps"],
        learning_rate=stage["learning_rate"],
        average=0.999,
    )
    if not trainer.done:
        if given.device == "cuda":
            vae.encoder.compile()
            vae.decoder.compile()
        trainer.run(
            lambda: first_stage.losses(vae, pool, stage["batch"], stage["kl_weight"]), given.stop_at
        )
        if not trainer.done:
            return None
    vae = trainer.average.module.eval().requires_grad_(False)
    whitened = given.work / "vae" / "whitened.safetensors"
    if not whitened.exists():  # once: later pieces of the second stage need the very same latents
        rows = torch.arange(min(pool.size, 512), device=given.device)
        first_stage.whiten(vae, Latents(vae, pool).encode(rows).flatten(0, 1))
        save_file({name: value.contiguous() for name, value in vae.state_dict().items()}, whitened)
    vae.load_state_dict(load_file(whitened))
    return vae


if __name__ == "__main__":
    main()
