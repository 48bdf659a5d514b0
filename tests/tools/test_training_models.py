"""The embedded models: the fast forward equals transformers' own, whitening changes no picture,
training resumes.
"""

from __future__ import annotations

import json
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from later import Later
from PIL import Image

torch = Later("torch")
qwen_inputs = Later("pytest_imgedit.kinds.compute.qwen_inputs")
batched = Later("tools.train_embedded.batched")
editor_model = Later("tools.train_embedded.editor_model")
judge_model = Later("tools.train_embedded.judge_model")
loop = Later("tools.train_embedded.loop")
records = Later("tools.train_embedded.records")
text = Later("tools.train_embedded.text")
vae = Later("tools.train_embedded.vae")

pytestmark = pytest.mark.everyday

FOLDER = Path(__file__).parent.parent.parent / "tools" / "train_embedded"


@pytest.fixture(scope="module")
def texts() -> text.Texts:
    return text.Texts.train(
        [
            records.as_pair(scene, c, "en")
            for n in range(60)
            for c, *both in [records.make_scenes(0, n)]
            for scene in both
        ]
    )


@pytest.fixture(scope="module")
def judge(texts: text.Texts) -> Any:
    config = tomllib.loads((FOLDER / "judge.toml").read_text())
    torch.manual_seed(0)
    return judge_model.judge_model(texts.judge, config["vision"], config["text"]).eval()


def test_the_batched_forward_gives_the_logits_of_the_models_own(
    texts: text.Texts, judge: Any
) -> None:
    category, *scenes = records.make_scenes(5, 2)
    pairs = [records.as_pair(scene, category, "en") for scene in scenes]
    images = [
        [torch.from_numpy(records.draw(scene, after).copy()) for after in (False, True)]
        for scene in scenes
    ]
    answer = texts.judge(text.reply((7, 10, 0), texts.protocol))["input_ids"]
    encoded = [texts.encode(pair) for pair in pairs]
    longest = max(int(one["tail_length"]) for one in encoded) + len(answer)
    tails = [one["tail"][: int(one["tail_length"])].tolist() + answer for one in encoded]
    tokens = torch.tensor([tail + [0] * (longest - len(tail)) for tail in tails])
    pixels = torch.stack([torch.stack(both).permute(0, 3, 1, 2).float() / 255 for both in images])
    forward = batched.BatchedJudge(judge, texts)
    processor = qwen_inputs.AssembledProcessor(texts.judge, judge_model.image_processor(8))
    with torch.no_grad():
        found = judge.lm_head(forward(pixels[:, 0], pixels[:, 1], tokens))
        for row, (pair, both) in enumerate(zip(pairs, images, strict=True)):
            prompt = texts.prompt(pair) + text.reply((7, 10, 0), texts.protocol)
            inputs = processor(prompt, [Image.fromarray(image.numpy()) for image in both])
            assert torch.equal(
                torch.cat(list(forward.patches(pixels[row]))), inputs["pixel_values"]
            )
            length = len(tails[row])
            expected = judge(**inputs).logits[0, -length:]
            torch.testing.assert_close(found[row, :length], expected, atol=1e-5, rtol=1e-4)


def test_whitening_changes_latents_and_no_picture() -> None:
    torch.manual_seed(0)
    model = editor_model.autoencoder(
        {
            "block_out_channels": [16, 16],
            "layers_per_block": 1,
            "latent_channels": 4,
            "norm_num_groups": 8,
        }
    ).eval()
    images = torch.rand(16, 3, 32, 32) * 2 - 1
    with torch.no_grad():
        before = model.decode(model.encode(images).latent_dist.mode()).sample
        vae.whiten(model, model.encode(images).latent_dist.mode())
        latents = model.encode(images).latent_dist.mode()
        torch.testing.assert_close(model.decode(latents).sample, before, atol=1e-3, rtol=1e-3)
    flat = latents.permute(1, 0, 2, 3).flatten(1)
    torch.testing.assert_close(torch.cov(flat), torch.eye(4), atol=1e-2, rtol=0)
    torch.testing.assert_close(flat.mean(1), torch.zeros(4), atol=1e-2, rtol=0)


def _trainer(folder: Path, steps: int) -> loop.Trainer:
    torch.manual_seed(0)
    return loop.Trainer(torch.nn.Linear(4, 1), folder, steps=steps, learning_rate=0.2, average=0.9)


def _run(trainer: loop.Trainer, seconds: float = 60) -> None:
    def losses() -> dict[str, torch.Tensor]:
        x = torch.randn(32, 4)
        return {"mse": (trainer.model(x).squeeze(1) - x.sum(1)).square().mean()}

    trainer.run(losses, time.monotonic() + seconds)


def test_training_stops_in_time_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    first = _trainer(tmp_path, 400)
    _run(first, seconds=0)
    assert first.step == 0
    half = _trainer(tmp_path, 200)
    _run(half)
    again = _trainer(tmp_path, 400)
    assert again.step == 200
    torch.testing.assert_close(
        again.model.weight, half.model.weight, atol=1e-3, rtol=1e-3
    )  # half precision
    torch.testing.assert_close(
        again.average.module.weight, half.average.module.weight, atol=1e-3, rtol=1e-3
    )
    own, kept = (trainer.optimizer.state[trainer.model.weight] for trainer in (half, again))
    assert own["step"] == kept["step"] == 200
    for moment in ("exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(kept[moment], own[moment], atol=1e-3, rtol=1e-2)  # bfloat16
    assert again._rate() < half.rate / 200  # it warms up again
    _run(again)
    assert again.done
    torch.testing.assert_close(again.average.module.weight, torch.ones(1, 4), atol=0.02, rtol=0)
    steps = [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert steps == [100, 200, 300, 400]


def test_the_optimizers_state_is_kept_apart_and_may_be_missing(tmp_path: Path) -> None:
    _run(_trainer(tmp_path, 100))
    (tmp_path / "optimizer.safetensors").unlink()
    again = _trainer(tmp_path, 200)
    assert again.step == 100
    assert not again.optimizer.state
    _run(again)
    assert again.done
    assert (
        _trainer(tmp_path, 300).optimizer.state_dict()["state"][0]["step"] == 100
    )  # the age of the moments
