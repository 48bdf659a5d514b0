"""Edits of the embedded editor itself, good and bad, for the judge to learn from."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import torch

from tools.train_embedded.edits import quantize

if TYPE_CHECKING:
    from tools.train_embedded.pool import Batch, Pool

STEPS = (1, 2, 3, 4, 6, 8, 12, 20)
GUIDANCE = (1.0, 1.0, 1.5, 2.0, 3.0, 5.0)


class EditBank:
    """Keeps the newest `capacity` edits (uint8) with the places of their pairs in a pool.

    Each call of `add` edits one batch at a quality of its own: steps, guidance, and sometimes the
    instruction of another pair.
    """

    def __init__(self, pipeline: Any, pool: Pool, capacity: int) -> None:
        self.pipeline, self.pool, self.capacity = pipeline, pool, capacity
        words = pipeline.tokenizer
        self.empty = torch.tensor(words("", padding="max_length")["input_ids"], device=pool.device)
        self.made = 0
        self.edits = torch.empty((capacity, 3, 128, 128), dtype=torch.uint8, device=pool.device)
        self.rows = torch.zeros(capacity, dtype=torch.long, device=pool.device)
        self.side = torch.zeros(capacity, dtype=torch.long, device=pool.device)

    @property
    def size(self) -> int:
        return min(self.made, self.capacity)

    @torch.no_grad()
    def add(self, count: int) -> None:
        """Edit `count` pairs of the pool and keep the edits."""
        batch = self.pool.sample(count)
        prompt = batch.prompt.roll(1, 0) if random.random() < 0.1 else batch.prompt
        with torch.autocast(self.pool.device, torch.bfloat16):
            text = self.pipeline.text_encoder(prompt)[0].float()
            nothing = self.pipeline.text_encoder(self.empty[None])[0].float().expand_as(text)
            edits = self.pipeline(
                image=batch.drawn.source,
                prompt_embeds=text,
                negative_prompt_embeds=nothing,
                num_inference_steps=random.choice(STEPS),
                guidance_scale=random.choice(GUIDANCE),
                image_guidance_scale=random.uniform(1.0, 2.0),
                output_type="pt",
            ).images
        places = torch.arange(self.made, self.made + count, device=self.pool.device) % self.capacity
        self.edits[places] = (quantize(edits.float()) * 255).round().to(torch.uint8)
        self.rows[places], self.side[places] = batch.rows, batch.side
        self.made += count

    def sample(self, count: int) -> tuple[Batch, torch.Tensor]:
        """Draw pairs with their edits (B, 3, 128, 128) on [0, 1]."""
        places = torch.randint(self.size, (count,), device=self.pool.device)
        return self.pool.at(self.rows[places], self.side[places]), self.edits[places].float() / 255
