"""The configs of a trainer's workers, with the field that the README of imgedit-verl has users
add.
"""

from dataclasses import dataclass, field

from imgedit_verl.config import ImageEditConfig


@dataclass
class ActorConfig:
    strategy: str = "fsdp"
    global_batch_size: int = 256


@dataclass
class WorkerConfig:
    hybrid_engine: bool = True
    actor: ActorConfig = field(default_factory=ActorConfig)
    image_edit: ImageEditConfig = field(default_factory=lambda: ImageEditConfig(model_path="???"))
