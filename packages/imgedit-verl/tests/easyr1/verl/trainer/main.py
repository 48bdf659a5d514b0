"""The trainer's command: defaults, then the file `config=FILE`, then the command line; what comes of
them goes to the workers as dataclasses.

    python -m verl.trainer.main config=FILE worker.image_edit.enable_fsdp=true
"""

import json
from dataclasses import asdict

from imgedit_verl.worker import ImageEditWorker
from omegaconf import OmegaConf

from verl.trainer.config import PPOConfig


def main() -> None:
    named = OmegaConf.from_cli()
    layers = [OmegaConf.structured(PPOConfig())]
    if "config" in named:
        layers.append(OmegaConf.load(named.pop("config")))
    config = OmegaConf.to_object(OmegaConf.merge(*layers, named))
    assert isinstance(config, PPOConfig)
    print(json.dumps(asdict(ImageEditWorker(config).config)))


if __name__ == "__main__":
    main()
