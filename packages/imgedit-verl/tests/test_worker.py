"""The editor as a worker of verl's own worker group, on real Ray actors; runs where verl is
installed.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import ray
from imgedit_verl.config import ImageEditConfig, picture
from imgedit_verl.worker import ImageEditWorker
from PIL import Image
from verl import DataProto
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

from pytest_imgedit.core.images import encode_png
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.diffusers import DiffusersEditor

STEPS = 2


@pytest.fixture(scope="module")
def cluster():
    own = str(Path(__file__).parent)  # actors import this file too
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": own}
    # verl asks for ten CPUs a worker; they are counted, not used
    ray.init(
        "local",
        num_cpus=400,
        include_dashboard=False,
        runtime_env={"env_vars": environment},
        log_to_driver=False,
    )
    yield
    ray.shutdown()


class Spoilable(ImageEditWorker):
    """A worker whose pipeline a test can make fail."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def spoil(self, part):
        """`part` is "single edits", "the second rank", "images of the second rank" or "nothing"."""
        pipeline = self.editor.editor._editor
        vars(pipeline).pop("run", None)
        run = pipeline.run
        if part == "single edits" or (part == "the second rank" and self.rank == 1):
            pipeline.run = fail
        elif part == "images of the second rank" and self.rank == 1:
            pipeline.run = lambda *arguments: SimpleNamespace(
                images=run(*arguments).images * float("nan")
            )


def fail(*args):
    raise MemoryError("nothing left")


@pytest.fixture(scope="module")
def group(cluster, tiny):
    """Make a group of two workers, one for each config: their processes take seconds to start."""
    groups = {}

    def make(spoil="nothing", **config):
        key = tuple(config.items())
        if key not in groups:
            config = {
                "model_path": str(tiny("instruct-pix2pix")),
                "num_inference_steps": STEPS,
                "device": "cpu",
                **config,
            }
            pool = RayResourcePool(process_on_nodes=[2], use_gpu=False)
            groups[key] = RayWorkerGroup(
                pool, RayClassWithInitArgs(ray.remote(Spoilable), config=config), device_name="cpu"
            )
            groups[key].init_model()
        groups[key].spoil(spoil)
        return groups[key]

    yield make
    for workers in groups.values():
        for actor in workers.workers:
            ray.kill(actor)


def photo(seed, size=(64, 48)):
    return Image.fromarray(
        np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    )


def batch(images, instructions, **meta):
    columns = {"preliminary_edited_images": images, "re_edit_instructions": instructions}
    arrays = {}
    for name, values in columns.items():
        arrays[name] = np.empty(len(values), dtype=object)
        arrays[name][:] = values
    return DataProto(non_tensor_batch=arrays, meta_info=meta)


@pytest.mark.parametrize(
    "config",
    [
        {"batch_size": 2},  # as FULL_SHARD shards
        {"fsdp_sharding_strategy": "SHARD_GRAD_OP", "fsdp_sync_module_states": False},
        {"fsdp_sharding_strategy": "NO_SHARD", "enable_cpu_offload": True},
    ],
)
def test_a_batch_is_edited_as_the_harness_edits_it(group, tiny, config):
    photos, words = [photo(n) for n in range(4)], ["make it snow", "rain", "at night", "in fog"]
    editor = DiffusersEditor(str(tiny("instruct-pix2pix")), device="cpu", num_inference_steps=STEPS)
    expected = [
        editor.edit(EditRequest("a", "b", text, image, 7))
        for image, text in zip(photos, words, strict=True)
    ]
    found = group(**config).edit_images_batch(batch(photos, words, seed=7))
    assert list(found.non_tensor_batch["edit_errors"]) == [""] * 4
    for one, other in zip(found.non_tensor_batch["final_edited_images"], expected, strict=True):
        assert (
            np.abs(np.asarray(one, int) - np.asarray(other, int)).max() <= 2
        )  # threads round differently


def test_what_cannot_be_edited_is_an_error_and_holds_up_no_other(group):
    images = [photo(1), "no image", encode_png(photo(2)), np.asarray(photo(3))]
    found = group(image_size=64).process_batch(batch(images, ["a", "b", "c", None]))
    edited, errors = (
        found.non_tensor_batch["final_edited_images"],
        found.non_tensor_batch["edit_errors"],
    )
    assert [image is not None for image in edited] == [True, False, True, False]
    assert errors[1] == "TypeError: an image that is a str"
    assert errors[3] == "TypeError: an instruction that is None"
    assert edited[0].size == (
        64,
        48,
    )  # the aspect of the photo, an area of about 64², multiples of 16


@pytest.mark.parametrize("config", [{}, {"enable_fsdp": False}])
def test_sources_of_one_size_are_edited_in_one_call(group, config):
    photos = [photo(n) for n in range(4)]
    found = group("single edits", batch_size=2, **config).edit_images_batch(
        batch(photos, ["a", "b", "c", "d"])
    )
    assert list(found.non_tensor_batch["edit_errors"]) == [""] * 4


@pytest.mark.parametrize("config", [{}, {"enable_fsdp": False}])
def test_a_rank_with_sources_of_two_sizes_holds_up_no_other(group, config):
    photos = [photo(0), photo(1), photo(2), photo(3, (48, 64))]
    found = group(batch_size=2, **config).edit_images_batch(batch(photos, ["a", "b", "c", "d"]))
    assert list(found.non_tensor_batch["edit_errors"]) == [""] * 4
    edited = found.non_tensor_batch["final_edited_images"]
    assert [image.width > image.height for image in edited] == [True, True, True, False]


def test_where_ranks_share_weights_one_whose_pipeline_fails_fails_the_call_and_those_after_it(
    group,
):
    asked = batch([photo(1), photo(2)], ["a", "b"])
    workers = group("the second rank")  # out of step, so no other test has this config
    with pytest.raises(MemoryError, match="nothing left"):
        workers.edit_images_batch(asked)
    with pytest.raises(
        RuntimeError, match=r"out of step \(MemoryError: nothing left\): make a new"
    ):
        workers.edit_images_batch(asked)
    found = group("the second rank", batch_size=2, enable_fsdp=False).edit_images_batch(asked)
    assert list(found.non_tensor_batch["edit_errors"]) == ["", "MemoryError: nothing left"]


def test_where_ranks_share_weights_an_image_that_is_none_is_an_error_of_its_own(group):
    workers = group("images of the second rank", batch_size=2)
    for _ in range(2):
        found = workers.edit_images_batch(batch([photo(1), photo(2)], ["a", "b"])).non_tensor_batch[
            "edit_errors"
        ]
        assert found[0] == ""
        assert found[1].startswith("OutputError: ")


def test_a_config_that_means_nothing_is_refused():
    with pytest.raises(
        ValueError, match=r"fsdp_sharding_strategy: found 'HALF', expected one of FULL_SHARD"
    ):
        ImageEditConfig("m", fsdp_sharding_strategy="HALF")
    with pytest.raises(ValueError, match=r"batch_size: found 0"):
        ImageEditConfig("m", batch_size=0)


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        (np.full((8, 8, 3), 0.5), 128),
        (np.full((8, 8, 3), 1.0, dtype=np.float32), 255),
        (np.full((8, 8, 3), 200, dtype=np.int64), 200),
        (np.full((8, 8, 3), 7, dtype=np.uint8), 7),
    ],
)
def test_arrays_are_read_by_a_stated_rule(pixels, expected):
    """F: a float array in [0, 1] became black."""
    assert picture(pixels).getpixel((0, 0)) == (expected,) * 3


def test_pictures_are_read_as_everywhere():
    assert picture(Image.new("RGBA", (8, 8), (255, 0, 0, 0))).getpixel((0, 0)) == (255, 255, 255)
    assert (
        picture(Image.fromarray(np.full((8, 8), 30000, dtype=np.uint16))).getpixel((0, 0))
        == (117,) * 3
    )
    for strange in (Image.new("F", (8, 8), 0.5), np.ones((8, 8, 3), dtype=bool)):
        with pytest.raises(ValueError, match="expected"):
            picture(strange)


@pytest.mark.parametrize("value", [-0.1, 1.5, 128.0, float("nan"), float("inf")])
def test_floats_that_do_not_say_what_white_is_are_refused(value):
    with pytest.raises(ValueError, match=r"expected \[0, 1\]"):
        picture(np.full((8, 8, 3), value))
