"""The editor `diffusers`: any instruction-edit pipeline of diffusers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from PIL import Image

from pytest_imgedit.core import errors, files, strict_json, targets
from pytest_imgedit.core.files import read_object
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.core.text import one_line
from pytest_imgedit.kinds import (
    adapter_files,
    checkpoint_files,
    edit_checks,
    quantized,
    scheduler_remarks,
    schedulers,
    single_files,
)
from pytest_imgedit.kinds.base import (
    GIB,
    CheckpointModel,
    Composition,
    Memory,
    Requirements,
    Room,
    Site,
    Where,
    attention_packages,
    refuse_if,
)
from pytest_imgedit.kinds.diffusers_parameters import DiffusersParameters, LoraParameters
from pytest_imgedit.kinds.pipeline_arguments import (
    ADAPTERS,
    Adapter,
    adapter_of,
    attention_backends,
    call_arguments,
    changeable_components,
    check_arguments,
    pipeline_class,
    without_call_defaults,
)
from pytest_imgedit.kinds.pipeline_index import require_components

if TYPE_CHECKING:
    import torch

#: The least bytes of weights of a model that is compiled on a GPU.
COMPILE_BYTES = 2 * GIB
#: The most seconds that compiling costs a worker with empty caches (Qwen-Image-Edit on an H100).
COMPILE_SECONDS = 28
#: Values of `offload` with which weights stay in host memory.
OFFLOADS = ("model", "group")


class DiffusersEditor:
    """Runs a pipeline that `DiffusionPipeline.from_pretrained` loads from a folder with safetensors
    weights.

    `params` are those of `DiffusersParameters`; an argument that the pipeline's call does not take
    raises `SetupError`.
    """

    #: Whether calls run in inference mode, as those of compiled editors do. Otherwise the first
    #: block's input, which is a view of another tensor, would have a graph of its own. Weights that
    #: are moved meanwhile, by offloading or between ranks, would become inference tensors.
    runs_inference = False
    #: Whether blocks are compiled for all calls to come, so that none of these compiles.
    is_warm = False

    def __init__(self, model: str, *, device: str, **params: Any) -> None:
        import torch

        from pytest_imgedit.kinds.compute import acceleration, lora, numerics, pipeline

        options = DiffusersParameters.parse(params)
        numerics.set_deterministic(options.deterministic)
        self.deterministic = options.deterministic
        is_offloaded = options.offload in OFFLOADS
        folder = Path(model)
        adapters = lora.read_loras(folder, options.loras, options.variant)
        load_to = "cpu" if is_offloaded else device
        dtype = numerics.pick_dtype(options.dtype, device)
        self.pipeline = pipeline.load_pipeline(
            folder,
            load_to,
            dtype,
            variant=options.variant,
            **pipeline.replaced_components(folder, options, dtype, load_to),
        )
        lora.use_loras(self.pipeline, adapters)
        self.compiled = acceleration.accelerate(self.pipeline, options)
        self.runs_inference = self.compiled and not is_offloaded
        if is_offloaded:
            acceleration.offload(self.pipeline, options.offload, torch.device(device))
        self._take(self.pipeline, options.model_extra or {}, options.area)

    @classmethod
    def around(cls, pipeline: Any, call: strict_json.JsonObject) -> DiffusersEditor:
        """Return an editor around a pipeline that is loaded already; `call` holds arguments of its
        calls. Raise `SetupError` for one of them that it does not take, and for a pipeline that is
        no known editor.
        """
        editor = cls.__new__(cls)
        editor.compiled = False
        editor.deterministic = True
        editor._take(pipeline, call, None)
        return editor

    def _take(self, pipeline: Any, call: strict_json.JsonObject, area: int | None) -> None:
        """Take over a loaded pipeline, the arguments of its calls, and the pixels of an edit, which
        are the model's own if `area` is `None`; raise `SetupError` as `around` does.
        """
        from pytest_imgedit.kinds.compute import acceleration
        from pytest_imgedit.kinds.compute.pipeline import Steps

        self.pipeline = pipeline
        self.area = area
        self.on_step: Callable[[int, int], None] = lambda step, steps: None
        pipeline.progress_bar = lambda iterable=None, total=None: Steps(
            self.on_step, iterable, total
        )
        self.adapter = adapter_of(pipeline)
        self.call = call_arguments(pipeline, call)
        takes_steps = "num_inference_steps" in inspect.signature(pipeline.__call__).parameters
        may_hurry = takes_steps and not {"sigmas", "timesteps"} & self.call.keys()
        #: Arguments of calls whose images nobody looks at.
        self._trial_call: dict[str, int] = {"num_inference_steps": 2} if may_hurry else {}
        acceleration.remember_negative(pipeline, self.call.get("negative_prompt"))

    def take_loras(self, loras: Sequence[Mapping[str, Any]]) -> None:
        """Use other LoRA adapters on the loaded base, such as those of the next training step.
        Raise `SetupError` for one that is wrong or does not fit.

        Each is a table as `LoraParameters` has it. A compiled network is compiled again, as in a
        worker that loads these adapters from the start.
        """
        from pytest_imgedit.kinds.compute import acceleration, lora

        if self.compiled:
            acceleration.compile_anew()
            self.is_warm = False
        lora.take_loras(self.pipeline, [LoraParameters.parse(dict(table)) for table in loras])

    def self_check(self) -> str | None:
        """Edit one small image until two edits in a row are equal, at most three times; return the
        `digest` of the last one, which every worker of one type of GPU shares.

        A first edit that differs from the later ones is discarded: it may have been made before
        something was compiled or cached. Raises `SetupError` if the later ones differ, and if the
        pipeline cannot edit. An edit takes two steps if the pipeline's call takes their number.

        With `deterministic=False` nothing is promised, so nothing is checked, and there is no
        digest.
        """
        if not self.deterministic:
            return None
        from pytest_imgedit.kinds.compute import numerics

        previous = self._values(_trial(0))
        probe = self._values(_trial(0))
        if not probe.equal(previous):
            previous = probe
            probe = self._values(_trial(0))
        if not probe.equal(previous):
            share = 1.0
            if probe.shape == previous.shape:
                share = float((probe != previous).float().mean())
            raise errors.SetupError(
                f"{type(self.pipeline).__name__} gives different images for one source, "
                f"instruction and seed ({share:.1%} of the values differ): its edits would depend "
                "on chance; editor.deterministic=false accepts that"
            )
        self.is_warm = self.runs_inference
        return numerics.digest(probe)

    def is_batch_invariant(self, size: int) -> bool:
        """Tell whether an edit has equal values at the first and at the last position of a call for
        `size` edits.

        Small images are edited, in as few steps as in `self_check`. If the values differ, an edit
        depends on the other edits of its batch.
        """
        probe = _trial(1)
        others = [_trial(2)] * (size - 1)
        first = self.run_batch([probe] + others, may_compile=True, **self._trial_call)
        last = self.run_batch(others + [probe], may_compile=True, **self._trial_call)
        edited = self.adapter.edited
        return bool(
            edited(first, 0).equal(edited(last, size - 1))
            and edited(first, size - 1).equal(edited(last, 0))
        )

    def _values(self, request: EditRequest) -> torch.Tensor:
        """Return the edit of a small image, with finite values; raise `SetupError` if the pipeline
        cannot make it. Errors of running out of memory pass unchanged.
        """
        from pytest_imgedit.kinds.compute.seeding import seed_all

        seed_all(request.seed)
        try:
            output = self.run(request, "pt", may_compile=True, **self._trial_call)
        except Exception as error:
            if errors.is_out_of_memory(error) or isinstance(error, errors.SetupError):
                raise
            raise errors.SetupError(
                f"{type(self.pipeline).__name__} cannot edit a small image: "
                f"{type(error).__name__}: {one_line(error)}"
            ) from error
        values: torch.Tensor = self.adapter.edited(output).float().nan_to_num()
        return values

    @staticmethod
    def warm_up(
        model: str, *, variant: str | None = None, single_file: str | None = None, **_: Any
    ) -> None:
        """Read weights while other workers load theirs."""
        layout = checkpoint_files.Layout.PIPELINE
        paths: list[Path] = []
        without: tuple[str, ...] = ()
        if single_file is not None:
            paths.append(Path(single_file))
            without = single_files.read(paths[0]).components
        names = checkpoint_files.loaded_files(Path(model), layout, variant, without)
        paths += [Path(model, name) for name in names if name.endswith(".safetensors")]
        files.read_ahead(paths)

    def run(
        self, request: EditRequest, output_type: str, may_compile: bool = False, **override: int
    ) -> Any:
        """Call the pipeline and return its output: images as tensors on [0, 1] (`"pt"`), or latents
        (`"latent"`).

        `override` replaces arguments that the editor was given. If the editor is warm, only a call
        that `may_compile` compiles.
        """
        arguments = self.adapter.arguments(
            self.pipeline, request, {**self.call, **override}, self.area
        )
        with self._calling(may_compile):
            return self.pipeline(
                output_type=output_type, generator=_generator(request), **arguments
            )

    def run_batch(
        self, requests: Sequence[EditRequest], may_compile: bool = False, **override: int
    ) -> Any:
        """Call the pipeline once for several requests, whose sources are of one size; return its
        output as tensors. `may_compile` and `override` are those of `run`.
        """
        arguments = self.adapter.batch_arguments(
            self.pipeline,
            requests,
            {**self.call, **override},
            self.area,
        )
        with self._calling(may_compile):
            return self.pipeline(
                output_type="pt",
                generator=[_generator(request) for request in requests],
                **arguments,
            )

    @contextmanager
    def _calling(self, may_compile: bool) -> Iterator[None]:
        """Surround a call of the pipeline: a compiled one runs in inference mode, and once it is
        warm compiles nothing unless it `may_compile`.
        """
        if not self.runs_inference:
            yield
            return
        import torch

        from pytest_imgedit.kinds.compute import acceleration

        is_frozen = self.is_warm and not may_compile
        with (
            torch.inference_mode(),
            acceleration.frozen_graphs() if is_frozen else nullcontext(),
        ):
            yield

    def edit(self, request: EditRequest) -> Image.Image:
        """Edit one image; on every device its noise comes from a CPU generator with the request's
        seed.

        Raises `OutputError` and `RuntimeError` as `picture` does.
        """
        return self.picture(self.run(request, "pt"))

    def edit_batch(self, requests: Sequence[EditRequest]) -> list[Image.Image | Exception]:
        """Edit several images of one size in one call, each with its own generator; return the
        edit of each, or why it has none.

        Raises `SetupError` for a pipeline that makes one edit a call.
        """
        if not self.adapter.batches:
            raise errors.SetupError(f"{type(self.pipeline).__name__} {self.adapter.no_batches}")
        output = self.run_batch(requests)
        return [self._picture_or_error(output, position) for position in range(len(requests))]

    def _picture_or_error(self, output: Any, position: int) -> Image.Image | Exception:
        try:
            return self.picture(output, position)
        except Exception as error:
            return error

    def picture(self, output: Any, position: int = 0) -> Image.Image:
        """Return the picture at a position of a pipeline's output as tensors; raise `OutputError`
        if it is not finite, and `RuntimeError` if a safety checker replaced it.
        """
        flagged = getattr(output, "nsfw_content_detected", None) or ()
        if len(flagged) > position and flagged[position]:
            raise RuntimeError("the pipeline's safety checker replaced the image")
        pixels = self.adapter.edited(output, position).float()  # (3 or 4, H, W) on [0, 1]
        edit_checks.require_finite(int((~pixels.isfinite()).sum()), pixels.numel())
        rounded = (pixels * 255).round().byte()  # a quarter of the bytes leave the GPU
        return Image.fromarray(rounded.permute(1, 2, 0).contiguous().cpu().numpy())


def _trial(number: int) -> EditRequest:
    """Return a request to try an editor with; each number has another source, instruction and
    seed.
    """
    return EditRequest(
        f"trial-{number}",
        "default",
        "make it brighter" if number % 2 else "snow",
        Image.linear_gradient("L").convert("RGB").rotate(90 * number),
        seed=number,
    )


def _generator(request: EditRequest) -> torch.Generator:
    import torch

    return torch.Generator("cpu").manual_seed(request.seed)


class Diffusers(CheckpointModel):
    """A pipeline of diffusers that edits by instruction."""

    role = "editor"
    name = "diffusers"
    worker = DiffusersEditor
    layout = checkpoint_files.Layout.PIPELINE
    Params = DiffusersParameters
    options: DiffusersParameters
    offloads = OFFLOADS
    pads_batches = True
    names_files = ("loras", "single_file")
    libraries = (
        "torch",
        "torchvision",
        "diffusers",
        "transformers",
        "tokenizers",
        "pillow",
    )

    @property
    def checkpoint(self) -> checkpoint_files.Checkpoint:
        without = self._single_file.components if self._single_file else ()
        return replace(super().checkpoint, variant=self.params.get("variant"), without=without)

    @cached_property
    def _single_file(self) -> single_files.SingleFile | None:
        """What `editor.single_file` holds; raises `SettingError` as `single_files.read` does."""
        path = self.params.get("single_file")
        return single_files.read(Path(path)) if isinstance(path, str) and path else None

    @cached_property
    def _lora_files(self) -> list[adapter_files.AdapterFile]:
        """The files of `editor.loras`; raises `UsageError` as `adapter_files.find` does."""
        return [adapter_files.find(lora.path) for lora in self.options.loras]

    @property
    def is_sharded(self) -> bool:
        """Whether a worker's GPUs share the editor, each with a process of its own."""
        return self.gpus > 1 and self.options.shard.strategy != "none"

    @cached_property
    def _adapter(self) -> Adapter | None:
        """How the pipeline is called; `None` if its class is not known here."""
        return ADAPTERS.get(pipeline_class(self.checkpoint.model) or "")

    @property
    def _scheduler(self) -> schedulers.Scheduler:
        """The scheduler in use."""
        return schedulers.scheduler_of(self.checkpoint.model, self.options.scheduler)

    @property
    def max_sources(self) -> int | None:
        return self._adapter.max_sources if self._adapter else None

    @property
    def why_fewer_sources(self) -> str:
        return self._adapter.one_because if self._adapter else ""

    @property
    def target(self) -> targets.Target:
        if not self.is_sharded:
            return super().target
        return replace(
            super().target,
            module="pytest_imgedit.kinds.sharded_editor",
            attribute="ShardedEditor",
        )

    @property
    def worker_params(self) -> strict_json.JsonObject:
        if self.is_sharded:
            return {**self.params, "ranks": self.gpus}
        return {name: value for name, value in self.params.items() if name != "shard"}

    def check(self, site: Site) -> None:
        """Raise `SettingError` for the first setting that is wrong, that does not go with another
        one, or that needs a package which is missing; raise `UsageError` for a checkpoint that is
        not whole or no instruction editor.
        """
        single_files.refuse_as_folder(self.argument or "")
        refuse_if(
            self.gpus > 1 and self._offload in self.offloads,
            "offload",
            "not with --imgedit-gpus-per-worker: editor.shard.cpu_offload does that",
        )
        super().check(site)
        self._check_loras()
        self._check_options()
        check_arguments(self.checkpoint.model, self.params, self.options.model_extra or {})
        schedulers.check(
            self.checkpoint.model, self.options.scheduler, self.options.model_extra or {}
        )
        self._check_batches()
        self._check_shard(site)
        self._check_single_file()
        refuse_if(
            self.options.quantize and site.is_here and find_spec("torchao") is None,
            "quantize",
            "torchao is not installed, pip install torchao",
        )
        self._check_quantized()
        require_components(Path(self.checkpoint.snapshot or self.checkpoint.model))

    def _check_quantized(self) -> None:
        """Raise `SettingError` for a setting that does not go with weights that are quantised."""
        for quantization in self.checkpoint.quantizations[:1]:
            already = f"not with weights that are quantised already: {quantization.config}"
            refuse_if(self.options.quantize, "quantize", already)
            refuse_if(self.is_sharded, "shard", already)
        for quantization in self.checkpoint.quantizations:
            refuse_if(
                self.options.compile in (True, "if possible") and quantization.method == "torchao",
                "compile",
                "not with weights of torchao, whose compiled layers give other edits: "
                f"{quantization.config}",
            )
            refuse_if(
                self.options.offload == "group" and quantization.is_of_bitsandbytes,
                "offload",
                "found 'group', expected 'model': bitsandbytes fails on weights that are moved "
                f"block by block: {quantization.config}",
            )

    def _check_loras(self) -> None:
        """Raise `SettingError` for an adapter that is missing, not in safetensors, or not plain
        LoRA, that does not fit whole as far as the headers of its file and of the base tell, and
        for a name or file that is given twice.
        """
        loras = self.options.loras
        names = [lora.name for lora in loras if lora.name]
        refuse_if(len(set(names)) < len(names), "loras", "a name is given twice")
        try:
            paths = [adapter.weights.resolve() for adapter in self._lora_files]
            refuse_if(len(set(paths)) < len(paths), "loras", "a file is given twice")
            for adapter in self._lora_files:
                self._check_fit(adapter)
        except errors.SettingError:
            raise
        except errors.UsageError as error:
            raise errors.SettingError("loras", str(error)) from None

    def _check_fit(self, adapter: adapter_files.AdapterFile) -> None:
        """Raise `UsageError` for an adapter that does not fit the base, if its names are those of
        the base's modules and both are here; others are looked at in a worker.
        """
        name = pipeline_class(self.checkpoint.model)
        components = changeable_components(name or "")
        try:
            folder = self.checkpoint.local_folder
        except errors.UsageError:
            return
        if name is None or components is None:
            return
        bases = adapter_files.bases_of(folder, components, self.options.variant)
        if not adapter_files.needs_conversion(adapter, bases):
            adapter_files.check(adapter, name, adapter.tensors, bases, components)

    def _check_single_file(self) -> None:
        """Raise `SettingError` for a single file that does not go with the pipeline or with another
        setting.
        """
        file = self._single_file
        if file is None:
            return
        folder = self.checkpoint.snapshot or Path(self.checkpoint.model)
        if folder.is_dir():
            index = read_object(folder / "model_index.json", "a diffusers checkpoint")
            file.require_fit(folder, index)
        refuse_if(file.is_gguf and self.options.quantize, "quantize", "not with a GGUF file")
        refuse_if(
            file.is_gguf and self.options.compile in (True, "if possible"),
            "compile",
            "not with a GGUF file, whose compiled layers give other edits",
        )
        refuse_if(
            self.gpus > 1 and self.options.shard.strategy != "context",
            "single_file",
            'not with shards, expected editor.shard.strategy "context"',
        )

    def _check_shard(self, site: Site) -> None:
        """Raise `SettingError` for a `shard` with nothing to share, for quantization and LoRA
        adapters that do not go with it, and for a strategy that needs GPUs where there are none.
        """
        strategy = self.options.shard.strategy
        refuse_if(
            "shard" in self.params and self.gpus == 1,
            "shard",
            "nothing to share, expected --imgedit-gpus-per-worker of 2 or more",
        )
        refuse_if(
            self.is_sharded and self.options.quantize, "quantize", "not with a sharded editor"
        )
        refuse_if(
            self.is_sharded and self.options.loras and strategy != "context",
            "loras",
            'not with shards, expected editor.shard.strategy "context" or "none"',
        )
        needs_gpus = strategy in ("context", "none")
        refuse_if(
            self.gpus > 1 and needs_gpus and not site.may_have_gpus,
            "shard.strategy",
            f"{strategy!r} needs GPUs",
        )

    def _check_options(self) -> None:
        """Raise `SettingError` for a key of `shard` that its strategy leaves without effect, for
        options that exclude each other, and for an unknown attention backend.
        """
        options = self.options
        strategy = options.shard.strategy
        for name in self.params.get("shard", {}):
            refuse_if(
                name != "strategy" and strategy in ("context", "none"),
                f"shard.{name}",
                f"it does nothing with the strategy {strategy!r}",
            )
        refuse_if(options.loras and options.quantize, "loras", "not with editor.quantize")
        backend = options.attention_backend
        backends = attention_backends()
        refuse_if(
            backend is not None and backends and backend not in backends,
            "attention_backend",
            f"found {backend!r}, expected one of {', '.join(sorted(backends))}",
        )

    def _check_batches(self) -> None:
        """Raise `SettingError` for batches if the editor is sharded, or if its pipeline takes one
        source a call or makes edits that depend on the others of a call.
        """
        name = pipeline_class(self.checkpoint.model)
        size = self.batch_size
        refuse_if(
            size > 1 and self.is_sharded,
            "batch_size",
            f"found {size}, but a sharded editor makes one edit a call",
        )
        if self._adapter is not None:
            refuse_if(
                size > 1 and not self._adapter.batches,
                "batch_size",
                f"found {size}, but {name} {self._adapter.no_batches}",
            )

    def deciding(self, dtype: str) -> strict_json.JsonObject:
        """Return the parameters that decide the results, among them how the editor is sharded if
        that changes them.
        """
        params = DiffusersParameters.deciding(
            without_call_defaults(self.checkpoint.model, dict(self.params))
        )
        if "scheduler" in params:
            params["scheduler"] = schedulers.deciding(self.checkpoint.model, params["scheduler"])
            if not params["scheduler"]:
                del params["scheduler"]
        if "loras" in params:  # what they are called in messages decides nothing
            params["loras"] = [_deciding_lora(lora) for lora in params["loras"]]
        if self.is_sharded and self.options.shard.strategy == "context":
            return {**params, "shard": {"strategy": "context", "ranks": self.gpus}}
        if self.is_sharded and self.options.shard.param_dtype not in ("auto", dtype):
            return {**params, "shard": {"param_dtype": self.options.shard.param_dtype}}
        return params

    def compose(self, where: Where, digests: checkpoint_files.Digests) -> Composition:
        composition = super().compose(where, digests)
        require_components(self.checkpoint.folder)
        if self._adapter is not None:
            composition.computation["size"] = self._adapter.size
        for adapter in self._lora_files:
            if adapter.config is not None:  # workers on other hosts must find the same
                digests.of(adapter.config.parent, [adapter.config.name], is_sent=True)
        return replace(composition, lossy=self.lossy)

    @property
    def requirements(self) -> Requirements:
        """Packages of quantization, of LoRA adapters and of attention kernels count if they are
        used.
        """
        packages: list[str] = list(self.libraries)
        unused_packages: list[str] = []
        if self.options.quantize:
            packages.append("torchao")
        if self._single_file and self._single_file.is_gguf:
            packages.append("gguf")
        if self.options.loras:
            packages.append("peft")
        else:
            unused_packages.append("peft")
        packages += attention_packages(self.options.attention_backend or "")
        packages += quantized.packages(self.checkpoint.quantizations)
        if not schedulers.needs_scipy(self._scheduler):
            # scikit-learn needs scipy, and some versions of transformers import it
            unused_packages += ["scipy", "sklearn"]
        return Requirements(
            packages=tuple(packages),
            unused_packages=tuple(unused_packages),
            shares_cpu=self.is_sharded,
        )

    def component_bytes(self) -> dict[str, int]:
        """Return the bytes of weights in memory by component, with those of a single file and of
        LoRA adapters.
        """
        sizes = super().component_bytes()
        if self._single_file:
            sizes |= self._single_file.component_bytes(str(self.params.get("dtype", "auto")))
        for lora, adapter in zip(self.options.loras, self._lora_files, strict=True):
            sizes[lora.path] = adapter.weights.stat().st_size
        return sizes

    def memory(self) -> Memory:
        if not self.is_sharded:
            return super().memory()
        if self.options.shard.cpu_offload:
            return Memory(None, self.weight_bytes, reads=self.weight_bytes)
        return Memory(self._held_by_ranks(), reads=self.weight_bytes)

    def _held_by_ranks(self) -> int:
        """Return the bytes that the ranks hold together: of each component every rank holds a part
        (`"full"`), all of it (`"context"`), or both (`"grad_op"`). A text encoder that is
        replicated is held whole by every rank.
        """
        shard = self.options.shard
        ranks = self.gpus
        copies = {"full": 1, "grad_op": ranks + 1, "context": ranks}[shard.strategy]
        total = 0
        for name, size in self.component_bytes().items():
            is_whole = shard.text_encoder == "replicate" and name.startswith("text_encoder")
            total += size * (ranks if is_whole else copies)
        return total

    def hint(self, room: Room) -> str:
        """Return a phrase that names a setting with which less memory is needed, else what would
        hold the weights.
        """
        shard = self.options.shard
        if self.gpus > 1 and shard.strategy not in ("full", "none"):
            return '; editor.shard.strategy="full" needs less'
        if shard.text_encoder == "replicate":
            return '; editor.shard.text_encoder="shard" needs less'
        if self._offload == "model":
            return '; editor.offload="group" needs least'
        if room.enough is None and self.gpus > 1:
            return '; editor.shard.strategy="full" with editor.shard.cpu_offload=true needs least'
        return super().hint(room)

    def settle(self, gpu_bytes: float) -> Self:
        """Return this editor, set to offload if a GPU cannot hold it, or to be compiled if that
        changes no edit.

        Neither depends on how much there is to edit, so that no edit does.
        """
        settled = super().settle(gpu_bytes)
        is_of_bitsandbytes = any(said.is_of_bitsandbytes for said in self.checkpoint.quantizations)
        if settled.options.offload == "group" and is_of_bitsandbytes:
            return settled.with_params(offload="model")
        options = settled.options
        if options.compile != "auto" or options.offload in self.offloads or self.gpus > 1:
            return settled
        is_gguf = bool(self._single_file and self._single_file.is_gguf)
        is_plain = not is_gguf and not self.checkpoint.quantizations
        is_proven = self._adapter is not None and self._adapter.compiles and is_plain
        if is_proven and self.weight_bytes >= COMPILE_BYTES:
            return settled.with_params(compile="if possible")
        return settled

    @property
    def warm_up_line(self) -> str:
        if self.options.compile not in (True, "if possible"):
            return ""
        return (
            f"the editor is compiled, which takes up to {COMPILE_SECONDS} s a worker where nothing "
            "was compiled before; editor.compile=false saves that in a short run"
        )

    @property
    def remarks(self) -> Sequence[str]:
        options = self.options
        return [
            line
            for lora in options.loras
            if lora.weight
            for line in scheduler_remarks.adapter_remarks(
                self.checkpoint.model, options.scheduler, options.model_extra or {}, lora.path
            )
        ]

    @property
    def lossy(self) -> tuple[str, ...]:
        """The parameters, as `key=value`, that trade quality for speed."""
        lossy: list[str] = []
        if self.options.quantize:
            lossy.append(f"quantize={self.options.quantize}")
        if self._single_file and self._single_file.loss:
            lossy.append(f"single_file={self._single_file.loss}")
        backend = self.options.attention_backend or ""
        if re.search("sage|int8|fp8", backend):  # they compute in fewer bits
            lossy.append(f"attention_backend={backend}")
        return tuple(lossy)


def _deciding_lora(lora: Mapping[str, Any]) -> strict_json.JsonObject:
    """Return what an adapter decides: the file of its weights, and how these are scaled."""
    adapter = adapter_files.find(lora["path"])
    settings = adapter.settings.deciding if adapter.settings is not None else None
    return {
        "path": str(adapter.weights),
        "weight": lora.get("weight", 1),
        "scale": settings,
    }
