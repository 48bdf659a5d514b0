"""An image editor as a worker of verl and of EasyR1, for RL training that has edits made in its
rollouts.

EasyR1 brings a package `verl` of its own; this module imports under either. Each rank edits its
part of a batch; with FSDP the ranks share the weights, so that all of them edit equally many images
at the same time, which the dispatch of the trainer sees to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from verl.protocol import DataProto
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register

from imgedit_verl.config import Asked, ImageEditConfig, RankedEditor
from imgedit_verl.process import EditorProcess

IMAGES = "preliminary_edited_images"
INSTRUCTIONS = "re_edit_instructions"
EDITED = "final_edited_images"
ERRORS = "edit_errors"


class ImageEditWorker(Worker):
    """Edits images between a model's answer and its reward; make it with the trainer's worker
    groups.

    `config` is what `ImageEditConfig.of` reads: one, or a trainer's config with
    `worker.image_edit`.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = ImageEditConfig.of(config)
        self.editor: RankedEditor | None = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the editor on every rank, sharded if the config says so, or in a process of
        `editor_python`.
        """
        if self.config.editor_python is not None:
            self.editor = EditorProcess(self.config)
        else:
            from imgedit_verl.rank import RankEditor

            self.editor = RankEditor(self.config)
        self.editor.load()

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def edit_images_batch(self, data: DataProto) -> DataProto:
        """Edit `preliminary_edited_images` as `re_edit_instructions` say; both are in
        `non_tensor_batch`.

        Images are PIL images, arrays of shape (H, W, 3), or PNG, JPEG or WebP bytes. Arrays hold
        integers in [0, 255] or floats in [0, 1]. All images of a batch are edited with one seed.
        Returns `final_edited_images`, PIL images, and `edit_errors`, texts: an edit that failed is
        `None` with its reason, the others have an empty one. Where ranks share weights, raises what
        the pipeline itself raises, and `RuntimeError` from then on. `meta_info["seed"]` takes the
        place of the config's.
        """
        assert self.editor is not None, "init_model comes first"
        images = data.non_tensor_batch[IMAGES]
        instructions = data.non_tensor_batch[INSTRUCTIONS]
        seed = int(data.meta_info.get("seed", self.config.seed))
        asked = [
            Asked.read(image, words) for image, words in zip(images, instructions, strict=True)
        ]
        edited = np.empty(len(asked), dtype=object)
        errors = np.empty(len(asked), dtype=object)
        for n, outcome in enumerate(self.editor.edit(asked, seed)):
            edited[n], errors[n] = outcome
        return DataProto(non_tensor_batch={EDITED: edited, ERRORS: errors})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def process_batch(self, data: DataProto) -> DataProto:
        """Do what `edit_images_batch` does."""
        found: DataProto = self.edit_images_batch(data)
        return found
