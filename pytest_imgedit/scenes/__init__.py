"""The embedded suite: drawn pairs with a known right answer, and the models that were trained on
its scenes.
"""

from pathlib import Path

#: Folders `editor` (a diffusers pipeline) and `judge` (a Qwen3-VL), made by
#: `tools/train_embedded/`.
WEIGHTS = Path(__file__).parent / "weights"
