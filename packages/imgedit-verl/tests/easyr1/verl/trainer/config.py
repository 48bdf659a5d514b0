"""The config of a trainer: dataclasses all the way down, so that no key is taken that none of them
has.
"""

from dataclasses import dataclass, field

from verl.workers.config import WorkerConfig


@dataclass
class TrainerConfig:
    n_gpus_per_node: int = 8
    project_name: str = "easy_r1"


@dataclass
class PPOConfig:
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
