"""A Qwen3-VL judge over batches of equal-sized picture pairs, without transformers' loops over
images and samples.

Prompts of one protocol differ only after the second picture, so padding stands on the right, the
pictures at the same places in all rows, and all rows have the same positions. The numbers are those
of the model's own forward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F

if TYPE_CHECKING:
    from tools.train_embedded.text import Texts


class BatchedJudge(torch.nn.Module):
    """Wraps a `Qwen3VLForConditionalGeneration` whose position grid is that of the pictures (side /
    patch size).
    """

    order: torch.Tensor
    before: torch.Tensor
    between: torch.Tensor

    def __init__(self, model: Any, texts: Texts, side: int = 128) -> None:
        super().__init__()
        self.model = model
        vision = model.config.vision_config
        self.patch, self.merge = vision.patch_size, vision.spatial_merge_size
        self.grid = side // self.patch
        if vision.num_position_embeddings != self.grid**2:
            raise ValueError(
                f"{vision.num_position_embeddings} position embeddings, expected {self.grid**2}"
            )
        cells = torch.arange(self.grid**2).view(self.grid, self.grid)
        order = self._merge_order(cells[None, None]).flatten()
        before, between = texts.head
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("before", torch.tensor(before), persistent=False)
        self.register_buffer("between", torch.tensor(between), persistent=False)
        self.places = self.grid // self.merge  # a side of the picture's tokens

    def _merge_order(self, image: torch.Tensor) -> torch.Tensor:
        """Cut (B, C, H, W) into one-cell patches, blocks that are merged together: (B, cells,
        C).
        """
        m = self.merge
        blocks: torch.Tensor = image.unflatten(-1, (-1, m)).unflatten(
            -3, (-1, m)
        )  # (B, C, H/m, m, W/m, m)
        return blocks.permute(0, 2, 4, 3, 5, 1).flatten(1, 4)

    def patches(self, images: torch.Tensor) -> torch.Tensor:
        """Cut pictures (B, 3, H, W) on [0, 1] into the image processor's patches (B, cells,
        3·2·patch·patch).
        """
        p = self.patch
        cut = (images * 2 - 1).unflatten(-1, (-1, p)).unflatten(-3, (-1, p))  # (B, 3, gh, p, gw, p)
        cells = cut.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)  # (B, 3·p·p, gh, gw)
        ordered: torch.Tensor = self._merge_order(cells).unflatten(-1, (3, p * p))
        return (
            ordered[:, :, :, None].expand(-1, -1, -1, 2, -1).flatten(2)
        )  # a still picture is two equal frames

    def see(self, images: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Run the vision tower over pictures (B, 3, H, W): tokens (B, places², hidden), and those
        of deepstack.
        """
        tower = self.model.model.visual
        batch = len(images)
        x = tower.patch_embed(self.patches(images).flatten(0, 1)).view(batch, self.grid**2, -1)
        x = x + tower.pos_embed(self.order)
        cells = torch.stack([self.order // self.grid, self.order % self.grid], dim=-1)
        cos, sin = tower.rotary_pos_emb(x, cells)
        deep = []
        for number, block in enumerate(tower.blocks):
            x = x + self._attend(block.attn, block.norm1(x), cos, sin)
            x = x + block.mlp(block.norm2(x))
            if number in tower.deepstack_visual_indexes:
                merger = tower.deepstack_merger_list[tower.deepstack_visual_indexes.index(number)]
                deep.append(merger(x.flatten(0, 1)).view(batch, self.places**2, -1))
        return tower.merger(x.flatten(0, 1)).view(batch, self.places**2, -1), deep

    @staticmethod
    def _attend(
        attention: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        q, k, v = (
            attention.qkv(x)
            .unflatten(-1, (3, attention.num_heads, -1))
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )

        def turn(t: torch.Tensor) -> torch.Tensor:
            first, second = t.float().chunk(2, dim=-1)
            return (t.float() * cos + torch.cat((-second, first), dim=-1) * sin).to(t.dtype)

        mixed = F.scaled_dot_product_attention(turn(q).to(v.dtype), turn(k).to(v.dtype), v)
        projected: torch.Tensor = attention.proj(mixed.transpose(1, 2).flatten(2))
        return projected

    def positions(self, length: int) -> torch.Tensor:
        """Return the multimodal rotary positions (3, 1, length) of a prompt whose text goes on to
        `length` tokens.
        """
        device = self.before.device
        cells = torch.arange(self.places**2, device=device)
        picture = torch.stack([torch.zeros_like(cells), cells // self.places, cells % self.places])
        pieces: list[torch.Tensor] = []
        start = 0
        for text in (len(self.before), len(self.between)):
            pieces += [
                torch.arange(start, start + text, device=device).expand(3, -1),
                picture + start + text,
            ]
            start += text + self.places
        rest = length - sum(piece.shape[1] for piece in pieces)
        pieces.append(torch.arange(start, start + rest, device=device).expand(3, -1))
        return torch.cat(pieces, dim=1)[:, None]

    def forward(
        self, source: torch.Tensor, edited: torch.Tensor, text: torch.Tensor
    ) -> torch.Tensor:
        """Return the last hidden states (B, T, hidden) over `text` (B, T), the token ids after the
        second picture.
        """
        language = self.model.model.language_model
        batch = len(text)
        seen, deep = self.see(torch.cat([source, edited]))
        embed = language.embed_tokens
        before, between = (embed(ids).expand(batch, -1, -1) for ids in (self.before, self.between))
        pieces = [
            before,
            seen[:batch].to(before.dtype),
            between,
            seen[batch:].to(before.dtype),
            embed(text),
        ]
        x = torch.cat(pieces, dim=1)
        rotary = language.rotary_emb(x, self.positions(x.shape[1]))
        gaps = [x.new_zeros(batch, piece.shape[1], x.shape[2]) for piece in (before, between, text)]
        for number, layer in enumerate(language.layers):
            x = layer(x, attention_mask=None, position_embeddings=rotary)
            x = x[0] if isinstance(x, tuple) else x
            if number < len(deep):
                own = deep[number].to(x.dtype)
                x = x + torch.cat([gaps[0], own[:batch], gaps[1], own[batch:], gaps[2]], dim=1)
        hidden: torch.Tensor = language.norm(x[:, -text.shape[1] :])
        return hidden
