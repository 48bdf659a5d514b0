"""What model_index.json must name: the components without which diffusers does not make a pipeline."""

from __future__ import annotations

import json
import shutil

import pytest
from later import Later

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.diffusers import Diffusers
from pytest_imgedit.kinds.pipeline_arguments import ADAPTERS
from pytest_imgedit.kinds.pipeline_index import (
    lacks_diffusers,
    lacks_transformers,
    needed_components,
)

diffusers = Later("diffusers")
transformers = Later("transformers")


def test_needed_components_are_those_that_diffusers_itself_wants():
    for name in ADAPTERS:
        pipeline = getattr(diffusers, name)
        components, _ = pipeline._get_signature_keys(pipeline)
        wanted = set(components) - set(pipeline._optional_components)
        assert set(needed_components(name)) == wanted


def test_classes_that_a_library_has_are_not_said_to_be_missing():
    for name in ("UNet2DConditionModel", "AutoencoderKL", *ADAPTERS):
        assert not lacks_diffusers(name)
    assert lacks_diffusers("NoSuchModel")
    assert lacks_diffusers("UNet2DCondition")
    for name in ("CLIPTextModelWithProjection", "T5TokenizerFast", "Qwen2VLProcessor"):
        assert hasattr(transformers, name)
        assert not lacks_transformers(name)
    assert not lacks_transformers("CLIPFeatureExtractor")  # diffusers takes another for it
    for name in ("DPTFeatureExtractor", "NoSuchTokenizerFast"):
        assert not hasattr(transformers, name)
        assert lacks_transformers(name)


def indexed(folder, change):
    path = folder / "model_index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))
    return path


NEEDED = "expected the component that StableDiffusionInstructPix2PixPipeline needs"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"vae": [None, None]}, f"'vae' is null, {NEEDED}", id="pair-of-nulls"),
        pytest.param({"vae": None}, f"'vae' is null, {NEEDED}", id="null"),
        pytest.param({"scheduler": None}, f"'scheduler' is null, {NEEDED}", id="no-network"),
        pytest.param({"unet": "..."}, f"no 'unet', {NEEDED}", id="left-out"),
        pytest.param(
            {"unet": ["diffusers", None]},
            "'unet' is ['diffusers', None], expected [LIBRARY, CLASS] of the component that "
            "StableDiffusionInstructPix2PixPipeline needs",
            id="half",
        ),
        pytest.param(
            {"unet": ["diffusers", "NoSuchModel"]},
            "'unet' is 'NoSuchModel', which the installed diffusers does not have, expected one of "
            "its classes: another version may have it",
            id="class",
        ),
        pytest.param(
            {"feature_extractor": ["transformers", "DPTFeatureExtractor"]},
            "'feature_extractor' is 'DPTFeatureExtractor', which the installed transformers does "
            "not have, expected one of its classes: another version may have it",
            id="class-of-transformers",
        ),
    ],
)
def test_an_index_without_what_its_pipeline_needs_is_refused(tiny, tmp_path, change, said):
    folder = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / "model")

    (folder / "feature_extractor").mkdir()

    def changed(index):
        index.update(change)
        for name, value in change.items():
            if value == "...":
                del index[name]

    path = indexed(folder, changed)
    with pytest.raises(UsageError) as raised:
        Diffusers.of("diffusers", str(folder), {}).check(Site())
    assert str(raised.value) == f"{path}: {said}"


def test_the_line_ends_the_run(bench, tiny):
    folder = shutil.copytree(tiny("instruct-pix2pix"), bench.path / "model")
    indexed(folder, lambda index: index.update(vae=[None, None]))
    bench.refuses("model/model_index.json: 'vae' is null, *", "--imgedit-editor=diffusers:model")


@pytest.mark.parametrize("value", [None, [None, None]])
@pytest.mark.parametrize("name", ["safety_checker", "image_encoder", "feature_extractor"])
def test_optional_components_may_be_null(tiny, tmp_path, name, value):
    folder = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / "model")
    indexed(folder, lambda index: index.update({name: value}))
    Diffusers.of("diffusers", str(folder), {}).check(Site())
