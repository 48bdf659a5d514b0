"""Pictures encoded by a Qwen-VL model's vision tower in calls of one shape, each once for as long
as it is remembered.

What a picture becomes does not depend on the others of its call, so that it may be used again: for
another edit of the same source, for another question about the same edit, for the same two edits in
the other order.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from pytest_imgedit.kinds.qwen_decoder.decoding import Picture, Prompt
from pytest_imgedit.kinds.qwen_decoder.packed import DENSE_MULTIPLE, PackedDecoder, moved

try:
    from transformers import vision_utils
except ImportError:  # an older transformers
    vision_utils = None

#: Patches of a call: four pictures of a megapixel have so many.
CALL_PATCHES = 16384
#: Patches of the pictures that fill a call up; attention in larger ones would take its time.
FILLER_PATCHES = 4096
#: Bytes of the features that are remembered: those of some sixty pictures of a megapixel.
REMEMBERED_BYTES = 2**30
#: Grids whose places are known, at most a few hundred KiB each.
MOST_GRIDS = 256
#: Of one picture: the tensors (image tokens, hidden) that go into the language model, the first in
#: place of its embedded tokens, the others on top of the first layers.
Features = list[torch.Tensor]


class PictureEncoder:
    """Encodes pictures in calls of `CALL_PATCHES` patches, filled up by pictures of zeros."""

    def __init__(self, decoder: PackedDecoder) -> None:
        self.decoder = decoder
        self._remembered: OrderedDict[bytes, Features] = OrderedDict()
        self._grids: dict[tuple[int, ...], dict[str, torch.Tensor]] = {}

    def encode(self, prompts: Sequence[Prompt]) -> list[list[Features]]:
        """Return the features of each prompt's pictures."""
        new: dict[bytes, Picture] = {}
        found: dict[bytes, Features] = {}
        for prompt in prompts:
            for picture in prompt.pictures:
                if picture.key in self._remembered:
                    self._remembered.move_to_end(picture.key)
                    found[picture.key] = self._remembered[picture.key]
                else:
                    new[picture.key] = picture
        for call in _calls(new.values()):
            found |= self._encode(call)
        self._remember(found)
        return [[found[picture.key] for picture in prompt.pictures] for prompt in prompts]

    def _encode(self, pictures: Sequence[Picture]) -> dict[bytes, Features]:
        """Return the features of pictures, by their keys, from one call."""
        patches = [len(picture.pixels) for picture in pictures]
        filled = -(-sum(patches) // CALL_PATCHES) * CALL_PATCHES
        call = [*pictures, *self._filler(filled - sum(patches))]
        layers = self.decoder.features(call, patches, **self._places(call))
        merged = self.decoder.model.config.vision_config.spatial_merge_size**2
        features: dict[bytes, Features] = {}
        start = 0
        for picture, count in zip(pictures, patches, strict=True):
            stop = start + count // merged
            # A slice of its own: a view would keep the whole call.
            features[picture.key] = [layer[start:stop].clone() for layer in layers]
            start = stop
        return features

    def _places(self, pictures: Sequence[Picture]) -> dict[str, Any]:
        """Return what the tower would make of the grids of pictures, which are known by their grid:
        nothing for a tower that orders patches by windows, or of an older transformers.
        """
        visual = self.decoder.model.model.visual
        if vision_utils is None or not hasattr(visual, "interpolation_mode"):
            return {}
        grids = [tuple(picture.grid.tolist()) for picture in pictures]
        if len(self._grids) > MOST_GRIDS:
            self._grids.clear()
        for grid in set(grids) - set(self._grids):
            self._grids[grid] = _places_of(visual, grid)
        names = self._grids[grids[0]]
        places = {name: torch.cat([self._grids[grid][name] for grid in grids]) for name in names}
        counts = [math.prod(grid) for grid in grids]
        places["cu_seqlens"] = moved(torch.tensor([0, *counts]).cumsum(0).int(), visual.device)
        return {**places, "max_seqlen": max(counts)}

    def _filler(self, patches: int) -> Iterator[Picture]:
        """Yield pictures of zeros that together have so many patches."""
        model = self.decoder.model
        vision = model.config.vision_config
        merge = int(vision.spatial_merge_size)
        width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        for start in range(0, patches, FILLER_PATCHES):
            count = min(FILLER_PATCHES, patches - start)
            zeros = torch.zeros(count, width, dtype=model.dtype, device=model.device)
            yield Picture(b"", zeros, torch.tensor([1, merge, count // merge]))

    def _remember(self, found: dict[bytes, Features]) -> None:
        """Remember features, and forget those used longest ago if they take too much memory."""
        self._remembered |= found
        total = sum(_size(features) for features in self._remembered.values())
        while total > REMEMBERED_BYTES:
            _, features = self._remembered.popitem(last=False)
            total -= _size(features)


def _calls(pictures: Iterable[Picture]) -> Iterator[list[Picture]]:
    """Yield pictures, as many at a time as a call has patches for, and all for the same kernel; one
    that is larger is alone in its own.
    """
    for is_dense in (True, False):
        call: list[Picture] = []
        patches = 0
        for picture in pictures:
            count = len(picture.pixels)
            if (count % DENSE_MULTIPLE == 0) != is_dense:
                continue
            if call and patches + count > CALL_PATCHES:
                yield call
                call, patches = [], 0
            call.append(picture)
            patches += count
        if call:
            yield call


def _places_of(visual: Any, grid: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """Return the position of each patch of a grid, and how to interpolate its embedding, by the
    names that the tower's forward takes them by.
    """
    grids = torch.tensor([grid], device=visual.device)
    indices, weights = vision_utils.get_vision_interpolation_indices_and_weights(
        grids,
        num_grid_per_side=visual.num_grid_per_side,
        mode=visual.interpolation_mode,
        align_corners=visual.interpolation_align_corners,
        spatial_merge_size=visual.config.spatial_merge_size,
    )
    return {
        "position_ids": vision_utils.get_vision_position_ids(grids, visual.spatial_merge_size),
        "interp_indices": indices,
        "interp_weights": weights,
    }


def _size(features: Features) -> int:
    return sum(layer.nbytes for layer in features)
