"""LPIPS over networks with random weights, where torchmetrics and torchvision are installed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from later import Later
from PIL import Image

from pytest_imgedit.core import files
from pytest_imgedit.core.errors import SetupError, UsageError
from pytest_imgedit.core.requests import Question
from pytest_imgedit.kinds import learned_metrics
from pytest_imgedit.kinds.base import Site, Where
from pytest_imgedit.kinds.checkpoint_files import Digests
from pytest_imgedit.kinds.learned_metrics import BACKBONES, Backbone
from pytest_imgedit.kinds.registry import make_model

torch = Later("torch")

#: Layers behind which features are compared.
COMPARED = {"alex": (1, 4, 7, 9, 11), "squeeze": (1, 4, 7, 9, 10, 11, 12)}
#: What the authors of LPIPS shift and scale images on [-1, 1] by.
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)


class Network(NamedTuple):
    """A network with random weights, whose file is in torch's cache."""

    net: str
    file: Path
    module: torch.nn.Module

    def ask(self, *pairs, **params):
        """Measure pairs of source and edit."""
        return ask(build({"net": self.net, **params}), *pairs)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def network(request, cache, monkeypatch):
    pytest.importorskip("torchmetrics")
    models = pytest.importorskip("torchvision").models
    net = getattr(request, "param", "squeeze")  # the smallest
    torch.manual_seed(0)
    module = getattr(models, BACKBONES[net].network)().eval()
    file = cache / BACKBONES[net].file
    torch.save(module.state_dict(), file)
    monkeypatch.setattr(Backbone, "digits", files.digest(file)[:8])
    return Network(net, file, module)


def picture(seed, size=(100, 90)):
    patches = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(patches).resize(size, Image.Resampling.BICUBIC)


def build(params):
    model = make_model("metric", "lpips", params)
    model.check(Site())
    return model.target.build("cpu", model.worker_params)


def ask(worker, *pairs):
    questions = [
        Question(str(n), "physics", "lift it", {"source": source, "edited": edited})
        for n, (source, edited) in enumerate(pairs)
    ]
    return worker.answer(questions)


def lpips(network, first, second):
    """Compute the distance by the paper's formula, with the weights of layers that torchmetrics
    brings.
    """
    import torchmetrics

    heads = torch.load(
        Path(torchmetrics.__file__).parent / f"functional/image/lpips_models/{network.net}.pth",
        map_location="cpu",
        weights_only=True,
    )

    def features(image):
        values = torch.from_numpy(np.array(image, np.float32)).permute(2, 0, 1)[None]
        values = values / 127.5 - 1
        values = (values - torch.tensor(SHIFT)[:, None, None]) / torch.tensor(SCALE)[:, None, None]
        for n, layer in enumerate(network.module.features):
            values = layer(values)
            if n in COMPARED[network.net]:
                yield torch.nn.functional.normalize(values)

    with torch.inference_mode():
        return sum(
            ((one - other) ** 2 * head.reshape(1, -1, 1, 1)).sum(1).mean().item()
            for one, other, head in zip(
                features(first), features(second), heads.values(), strict=True
            )
        )


@pytest.mark.parametrize("network", COMPARED, indirect=True)
def test_it_is_the_papers_formula(network):
    first, second = picture(1), picture(2)
    unlike, equal = network.ask((first, second), (first, first))
    assert unlike.score == pytest.approx(lpips(network, first, second), rel=1e-4)
    assert unlike.score > 0.01
    assert equal.score == 0


def test_a_value_does_not_depend_on_its_batch(network):
    first, second, third = map(picture, (1, 2, 3))
    build({"net": network.net}).self_check()
    alone = network.ask((first, second))[0].score
    assert network.ask((second, third), (first, second))[1].score == alone


def test_small_images_and_absent_ones_have_no_value(network):
    small, large = picture(1, (40, 16)), picture(2)
    answers = network.ask((small, large), (large, small))
    assert answers[0].error == (
        "the source image is 40 x 16 pixels, expected at least 17 a side for lpips"
    )
    assert answers[1].score is not None
    [answer] = network.ask((large, large), against="reference")
    assert "has no reference image" in answer.error


def test_weights_are_identified_by_their_content(network, tmp_path):
    model = make_model("metric", "lpips", {"net": network.net})

    def identified():
        return model.compose(Where(), Digests(tmp_path / "digests.json")).parts["files"]

    assert identified() == {network.file.name: files.digest(network.file)}
    network.file.write_bytes(network.file.read_bytes() + b"\0")
    with pytest.raises(UsageError, match="damaged"):
        identified()


def test_a_worker_without_the_weights_does_not_download_them(network):
    model = make_model("metric", "lpips", {"net": network.net})
    network.file.unlink()
    with pytest.raises(SetupError, match=rf"{network.file}: no such file on this machine"):
        model.target.build("cpu", model.worker_params)


@pytest.mark.parametrize("net", BACKBONES)
def test_absent_and_damaged_weights_are_named_before_a_run_starts(cache, tmp_path, net):
    file, network = cache / BACKBONES[net].file, BACKBONES[net].network
    fetch = rf"torchvision.models.{network}\(weights="
    with pytest.raises(UsageError, match=rf"{file}: no such file, .*{fetch}"):
        build({"net": net})
    file.write_bytes(b"half of it")
    with pytest.raises(UsageError, match=rf"{file}: damaged, expected .*{fetch}"):
        make_model("metric", "lpips", {"net": net}).compose(Where(), Digests(tmp_path / "digests"))


@pytest.mark.parametrize("variable", ["TORCH_HOME", "XDG_CACHE_HOME", "HOME"])
@pytest.mark.everyday
def test_the_cache_is_found_where_torch_keeps_it(variable, tmp_path, monkeypatch):
    for name in ("TORCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    assert str(learned_metrics.torch_hub()) == torch.hub.get_dir()
    assert learned_metrics.torch_hub().is_relative_to(tmp_path)
