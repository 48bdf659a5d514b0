"""The judge `qwen-vl`: Qwen2.5-VL, Qwen3-VL and Qwen3-VL-MoE, through transformers."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from PIL import Image
from pydantic import Field

from pytest_imgedit.core import errors, files, requests, strict_json
from pytest_imgedit.core.text import plain
from pytest_imgedit.kinds import quantized
from pytest_imgedit.kinds.base import (
    CheckpointModel,
    Composition,
    ComputeParameters,
    Requirements,
    Site,
    Where,
    attention_packages,
    refuse_if,
)
from pytest_imgedit.kinds.checkpoint_files import (
    ADAPTER_CONFIG,
    ADAPTER_FILES,
    ADAPTER_WEIGHTS,
    Digests,
    Layout,
    weight_files,
)
from pytest_imgedit.kinds.safetensors_header import tensor_bytes

if TYPE_CHECKING:
    from concurrent.futures import Future

    import torch

    from pytest_imgedit.kinds.compute import fast_loading
    from pytest_imgedit.kinds.compute.qwen_inputs import AssembledProcessor
    from pytest_imgedit.kinds.qwen_decoder.decoding import Decoded, Decoder, Prompt


class QwenVLParameters(ComputeParameters):
    """What the judge `qwen-vl` takes."""

    max_new_tokens: int = Field(default=128, ge=1, description="length of a reply")
    max_pixels: int = Field(default=1_048_576, ge=1024, description="larger images are scaled down")
    scoring: Literal["greedy", "expected"] = Field(
        default="greedy",
        description='`"expected"`: scores are made of expected grades, over the judge\'s '
        "probabilities",
    )
    batch_invariant: bool = Field(
        default=True,
        description="a verdict is bitwise the same alone, in any batch and after a resume; `false` "
        "may be faster for small models, and is named in results",
    )
    adapter: str | None = Field(
        default=None,
        description="the folder of a LoRA adapter in PEFT's format (extra `lora`), merged into "
        "the weights",
    )
    attention: Literal[
        "auto", "sdpa", "eager", "flash_attention_2", "flash_attention_3", "flex_attention"
    ] = Field(
        default="auto",
        description='`"auto"` decodes without padding; another of transformers\' attention '
        "functions decodes through its `generate`",
    )


#: Architectures whose attention the packed decoder computes as transformers does.
PACKED = (
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
)
#: GPU memory that one question is expected to need beside the weights: two images of a megapixel,
#: in bytes.
QUESTION_BYTES = 3 * 2**30 // 2
#: The share of the free memory that a batch may be expected to need.
BATCH_SHARE = 0.75
MAX_BATCH = 32
CPU_BATCH = 4
#: The most tokens of the answer to a worker's first question.
SELF_CHECK_TOKENS = 4
#: Bytes of weights from which on kernels are compiled.
LARGE = 2 * 2**30
VISION = "<|vision_start|><|image_pad|><|vision_end|>"
#: By aspect, the expected grade and the mass of probability off the scale.
ExpectedGrades = dict[str, tuple[float, float]]


class QwenVLJudge:
    """Answers in batches, decoded greedily and, unless `attention` or the architecture says
    otherwise, without padding.

    `params` are those of `QwenVLParameters`. A judge over several GPUs, and one with another
    `attention` than `auto`, decodes through transformers' `generate`. With `batch_invariant` a
    reply depends on its own question alone, bit by bit; without, questions round each other's
    numbers, and pictures are not remembered. With `scoring="expected"` an answer also holds
    the expected grade of each aspect; that costs another look at an edit for each number that may
    start with a 1, with tokenizers that write 10 as 1 and 0, and up to two for each number that may
    have a decimal; as many at a time as there are questions.
    """

    def __init__(self, model: str, *, device: str, **params: Any) -> None:
        from pytest_imgedit.kinds.compute import numerics

        options = QwenVLParameters.parse(params)
        _set_switches(device, options.deterministic)
        self.deterministic = options.deterministic
        self.max_new_tokens = options.max_new_tokens
        self.expects_grades = options.scoring == "expected"
        folder = Path(model)
        dtype = numerics.pick_dtype(options.dtype, device)
        # Weights are read while code is imported and kernels are compiled.
        with _tensors_of(folder, device, dtype) as tensors:
            from pytest_imgedit.kinds.compute import lora
            from pytest_imgedit.kinds.qwen_decoder import fused

            self.processor = _processor_of(folder)
            reason = unpackable(read_config(folder))
            if options.attention == "auto" and reason:
                print(f"prompts are padded and decoded by transformers: {reason}", file=sys.stderr)
            is_packed = options.attention == "auto" and device != "balanced" and not reason
            self.compiled = False
            if is_packed and device == "cuda" and _is_large(folder):
                self.compiled = _compiling(folder).result()
            self.model = _load(folder, tensors, device, dtype, options.attention)
        self.processor_name = type(self.processor.image_processor).__name__
        self.size = {
            edge: min(self.processor.image_processor.size[edge], options.max_pixels)
            for edge in ("shortest_edge", "longest_edge")
        }
        if options.adapter is not None:
            self.model = lora.merge_lora(self.model, Path(options.adapter))
        if self.processor.image_token_id != self.model.config.image_token_id:
            raise errors.SetupError(
                f"{model}: tokenizer and model disagree on the image token "
                f"({self.processor.image_token_id} and {self.model.config.image_token_id})"
            )
        if self.compiled:
            fused.fuse(self.model)
        self.decoder = make_decoder(
            self.model,
            is_packed=is_packed,
            is_invariant=options.batch_invariant,
            pad_token=self.processor.tokenizer.pad_token_id,
        )
        self.batch_size = _batch_size(self.decoder, device)

    def self_check(self) -> str | None:
        """Ask one question alone and once more; return the `digest` of the logits of its answer.
        Raise `SetupError` unless both answers have equal tokens and logits.

        A decoder that has several prompts in one computation gets the question beside others the
        second time. If that alone changes the answer, it has each prompt to itself from now on.

        With `deterministic=False` nothing is promised, so nothing is checked, and there is no
        digest.
        """
        if not self.deterministic:
            return None
        from pytest_imgedit.kinds.qwen_decoder.invariant import InvariantDecoder

        decoder = self.decoder
        prompt = self._trial_prompt()
        alone = self._try([prompt])
        if isinstance(decoder, InvariantDecoder) and decoder.tiles_alike:
            # The pictures have one size, so that they may change places.
            other = replace(prompt, pictures=prompt.pictures[::-1])
            again = self._try([other, other, other, prompt])
            if again != alone and self._try([prompt]) == alone:
                print(
                    "an answer depends on what is judged beside it: each is computed by itself, "
                    "which takes longer",
                    file=sys.stderr,
                )
                decoder.separate()
                self.batch_size = _batch_size(decoder, self.model.device.type)
                return self.self_check()
        else:
            again = self._try([prompt])
        if again != alone:
            raise errors.SetupError(
                "the judge answers one question in two ways: its grades would depend on chance; "
                "judge.deterministic=false accepts that"
            )
        _, digest = alone
        return digest

    def _trial_prompt(self) -> Prompt:
        """Return a question about two pictures of one size."""
        # As large as those of most questions, so that what is prepared for this one serves them.
        side = max(256, math.isqrt(self.size["longest_edge"]))
        images = {
            "source": Image.linear_gradient("L").convert("RGB").resize((side, side)),
            "edited": Image.radial_gradient("L").convert("RGB").resize((side, side)),
        }
        question = requests.Question(
            "self-check",
            "default",
            instruction="",
            images=images,
            system="",
            parts=(("image", "source"), ("image", "edited"), ("text", "Which image is brighter?")),
        )
        return self.preprocess(question)

    def _try(self, prompts: Sequence[Prompt]) -> tuple[list[int], str]:
        """Return the tokens of the answer to the last of some prompts, and a digest of its logits;
        no picture is remembered from an earlier try.
        """
        from pytest_imgedit.kinds.compute import numerics
        from pytest_imgedit.kinds.qwen_decoder.invariant import InvariantDecoder

        if isinstance(self.decoder, InvariantDecoder):
            self.decoder.forget_pictures()
        decoded = self.decoder.decode(prompts, SELF_CHECK_TOKENS, keep_logits=True)
        tokens = decoded.tokens[-1]
        # Further logits follow an answer that ends before others.
        return tokens, numerics.digest(decoded.logits[-1][: len(tokens)])

    @staticmethod
    def warm_up(
        model: str, *, device: str, attention: str = "auto", deterministic: bool = True, **_: Any
    ) -> None:
        """Do what takes time but hardly any GPU memory, while another process still uses the GPU:
        read weights ahead, import, and begin to compile kernels.
        """
        folder = Path(model)
        files.read_ahead(weight_files(folder))
        _set_switches(device, deterministic)
        if device == "cuda" and attention == "auto" and _is_large(folder):
            _compiling(folder)
        _processor_of(folder)

    def preprocess(self, question: requests.Question) -> Prompt:
        """Return the tokens and patches of a question, made on the CPU; threads may do that ahead
        for later questions.
        """
        import torch

        from pytest_imgedit.kinds.qwen_decoder.decoding import Picture, Prompt

        sent = question.preparation.sent
        images = [sent(question.images[name]) for kind, name in question.parts if kind == "image"]
        inputs = self.processor(self._prompt(question), images, size=self.size)
        grids = inputs.get("image_grid_thw", torch.zeros(0, 3, dtype=torch.long))
        positions, _ = self.model.model.get_rope_index(
            inputs["input_ids"],
            mm_token_type_ids=inputs["mm_token_type_ids"],
            image_grid_thw=grids if len(grids) else None,
        )
        pixels = inputs.get("pixel_values", torch.zeros(0, 1)).to(self.model.dtype)
        if self.model.device.type == "cuda":
            pixels = pixels.pin_memory()
        patches = pixels.split(grids.prod(-1).tolist())
        keys = map(_digest, patches, grids)
        pictures = tuple(map(Picture, keys, patches, grids))
        return Prompt(inputs["input_ids"][0], positions[:, 0], pictures)

    def answer(
        self, questions: Sequence[requests.Question], prepared: Sequence[Prompt] | None = None
    ) -> list[requests.Answer]:
        """Return answers to questions; `prepared` holds what `preprocess` made of them, if that was
        done before.
        """
        prompts = prepared
        if prompts is None:
            prompts = [self.preprocess(question) for question in questions]
        longest = max(question.max_new_tokens for question in questions)
        length = max(self.max_new_tokens, longest)
        decoded = self.decoder.decode(prompts, length, keep_logits=self.expects_grades)
        answers = [
            requests.Answer(
                self.processor.tokenizer.decode(tokens, skip_special_tokens=True).strip(), cut=cut
            )
            for tokens, cut in zip(decoded.tokens, decoded.cut, strict=True)
        ]
        if self.expects_grades:
            return self._expect(answers, questions, prompts, decoded)
        return answers

    def _expect(
        self,
        answers: Sequence[requests.Answer],
        questions: Sequence[requests.Question],
        prompts: Sequence[Prompt],
        decoded: Decoded,
    ) -> list[requests.Answer]:
        """Return answers with their expected grades; `decoded` holds their tokens and logits."""
        from pytest_imgedit.kinds.qwen_decoder import logprob_scoring

        tokenizer = self.processor.tokenizer
        places: list[logprob_scoring.PlaceInReply] = []
        for row, question in enumerate(questions):
            in_reply = logprob_scoring.find_places(tokenizer, decoded.tokens[row], question.aspects)
            places += [logprob_scoring.PlaceInReply(row, place) for place in in_reply]
        replies = logprob_scoring.Replies(
            decoder=self.decoder,
            tokenizer=tokenizer,
            prompts=prompts,
            decoded=decoded,
            places=places,
        )
        means = logprob_scoring.expected_grades(tokenizer, replies.chances(), replies.after)
        grades: list[ExpectedGrades] = [{} for _ in answers]
        for (row, place), grade in zip(places, means, strict=True):
            grades[row][place.aspect] = grade
        return [
            _with_grades(answer, by_aspect)
            for answer, by_aspect in zip(answers, grades, strict=True)
        ]

    def _prompt(self, question: requests.Question) -> str:
        """Return a question in the tokenizer's chat template, or in ChatML if it has none."""
        tokenizer: Any = self.processor.tokenizer
        if tokenizer.chat_template is None:
            return chatml(question.system, question.parts)
        messages: list[strict_json.JsonObject] = []
        if question.system:
            messages.append({"role": "system", "content": [_content("text", question.system)]})
        content = [_content(kind, text) for kind, text in question.parts]
        messages.append({"role": "user", "content": content})
        return str(
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )


def make_decoder(model: Any, *, is_packed: bool, is_invariant: bool, pad_token: int) -> Decoder:
    """Return the decoder: of prompts that lie end to end if `is_packed`, else padded to one length.

    With `is_invariant` a reply does not depend on the other prompts of its batch.
    """
    from pytest_imgedit.kinds.qwen_decoder import decoding, invariant, packed

    if not is_packed:
        return decoding.PaddedDecoder(model, pad_token, is_invariant)
    decoder = packed.PackedDecoder(model)
    if is_invariant:
        return invariant.InvariantDecoder(decoder)
    return decoder


def _content(kind: str, text: str) -> dict[str, str]:
    """Return a part of a question as chat templates take it."""
    if kind == "image":
        return {"type": "image"}
    return {"type": "text", "text": plain(text)}


def _with_grades(answer: requests.Answer, grades: ExpectedGrades) -> requests.Answer:
    """Return an answer with its expected grades and the largest mass that lies off the scale."""
    expected = {aspect: mean for aspect, (mean, _) in grades.items()}
    off_scale = max((mass for _, mass in grades.values()), default=0.0)
    return replace(answer, expected=expected, off_scale=off_scale)


def read_config(folder: Path) -> strict_json.JsonObject:
    """Return a judge's config.json.

    Raises `UsageError` if it names no architecture, or lacks a key that every Qwen-VL model has.
    Models of other makers may have these keys too.
    """
    path = folder / "config.json"
    config = files.read_object(path, "the config of a transformers model")
    if not (isinstance(config.get("architectures"), list) and config["architectures"]):
        raise errors.UsageError(
            f"{path}: no 'architectures', expected the config of a transformers model"
        )
    for name in ("vision_config", "image_token_id"):
        if name not in config:
            raise errors.UsageError(
                f"{path}: {config['architectures'][0]} has no {name!r}, expected a Qwen-VL model "
                "as the judge qwen-vl"
            )
    return config


def unpackable(config: Mapping[str, Any]) -> str:
    """Return why the packed decoder would compute a model wrongly; empty if it would not."""
    architecture = config["architectures"][0]
    if architecture not in PACKED:
        return f"{architecture} is not one of {', '.join(PACKED)}"
    text = config.get("text_config") or config
    kinds = set(text.get("layer_types") or ()) - {"full_attention"}
    if kinds:
        return f"it has layers of {', '.join(sorted(kinds))}"
    if text.get("use_sliding_window"):
        return "it attends through a sliding window"
    if any(part.get("quantization_config") is not None for part in (config, text)):
        return "its weights are quantised"
    return ""


def chatml(system: str, parts: Sequence[tuple[str, str]]) -> str:
    """Return a question in ChatML, Qwen's own chat format, up to where the answer starts."""
    turns = ""
    if system:
        turns += f"<|im_start|>system\n{plain(system)}<|im_end|>\n"
    turns += "<|im_start|>user\n"
    for kind, text in parts:
        turns += VISION if kind == "image" else plain(text)
    return f"{turns}<|im_end|>\n<|im_start|>assistant\n"


def _digest(pixels: torch.Tensor, grid: torch.Tensor) -> bytes:
    """Return a SHA-256 digest of an image's patches and their grid."""
    import torch

    digest = hashlib.sha256(str(grid.tolist()).encode())
    digest.update(pixels.contiguous().view(torch.uint8).numpy().data)
    return digest.digest()


def _set_switches(device: str, deterministic: bool) -> None:
    """Set PyTorch's switches, as they have to be while kernels are compiled and later."""
    import torch

    from pytest_imgedit.kinds.compute import numerics

    numerics.set_deterministic(deterministic)
    if device == "cuda":  # several threads prepare questions, beside the one that feeds the GPU
        torch.set_num_threads(1)


@cache
def _processor_of(folder: Path) -> AssembledProcessor:
    """Return what makes the inputs of a model."""
    from pytest_imgedit.kinds.compute import qwen_inputs

    return qwen_inputs.AssembledProcessor.load(folder)


def _compiling(folder: Path) -> Future[bool]:
    """Begin to compile the kernels of a model; return whether that works."""
    import transformers

    from pytest_imgedit.kinds.qwen_decoder import fused

    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    model_class = getattr(transformers, config.architectures[0])
    return fused.compiling(model_class, fused.Widths.of(config))


@contextmanager
def _tensors_of(
    folder: Path, device: str, dtype: torch.dtype
) -> Iterator[fast_loading.StoredTensors | None]:
    """Yield the tensors of a model that go straight onto one GPU, and are read there from now on;
    `None` for any other model.
    """
    if device != "cuda" or quantized.read(folder / "config.json") is not None:
        yield None
        return
    from pytest_imgedit.kinds.compute import fast_loading

    with fast_loading.stored_tensors(folder, "cuda:0", dtype) as tensors:
        yield tensors


def _load(
    folder: Path,
    tensors: fast_loading.StoredTensors | None,
    device: str,
    dtype: torch.dtype,
    attention: str,
) -> Any:
    """Return a model loaded for inference, of `tensors` if these are given; raise `SetupError` for
    weights that do not fit its config.
    """
    from transformers import AutoModelForImageTextToText

    from pytest_imgedit.kinds.compute import fast_loading, tensor_checks

    options = {
        "attn_implementation": "sdpa" if attention == "auto" else attention,
        "use_safetensors": True,
        "trust_remote_code": False,
    }
    placement = {"cuda": {"": "cuda:0"}, "balanced": "auto"}.get(device)
    with tensor_checks.whole_checkpoints(folder):
        if tensors is not None:
            return fast_loading.load_on_gpu(folder, tensors, "cuda:0", dtype, **options).eval()
        return AutoModelForImageTextToText.from_pretrained(
            folder, dtype=dtype, device_map=placement, **options
        ).eval()


def _is_large(folder: Path) -> bool:
    """Tell whether a model is so large that compiled kernels save more time than it takes to
    compile them.
    """
    return sum(path.stat().st_size for path in weight_files(folder)) > LARGE


def _batch_size(decoder: Decoder, device: str) -> int:
    """Return the batch size: the replies that the decoder writes at a time if these are several, on
    the CPU `CPU_BATCH`, otherwise what fits into the GPU memory that is free after loading, at most
    `MAX_BATCH`.
    """
    import torch

    rows = getattr(decoder, "rows", 1)
    if rows > 1:
        return int(rows)
    if device == "cpu":
        return CPU_BATCH
    free, _ = torch.cuda.mem_get_info()
    return int(max(1, min(MAX_BATCH, BATCH_SHARE * free // QUESTION_BYTES)))


class QwenVL(CheckpointModel):
    """Qwen2.5-VL, Qwen3-VL or Qwen3-VL-MoE through transformers: greedy, in batches, with verdicts
    that do not depend on the batch. Other Qwen-VL models go through transformers' `generate`.
    """

    role = "judge"
    name = "qwen-vl"
    worker = QwenVLJudge
    layout = Layout.MODEL
    Params = QwenVLParameters
    options: QwenVLParameters
    names_files = ("adapter",)
    libraries = ("torch", "torchvision", "transformers", "tokenizers", "pillow")

    def check(self, site: Site) -> None:
        """Raise `SettingError` for a wrong parameter or a folder without an adapter, and
        `UsageError` for a checkpoint or an adapter that is not whole.
        """
        super().check(site)
        adapter = self.options.adapter
        for name in ADAPTER_FILES:
            refuse_if(
                adapter is not None and not Path(adapter, name).is_file(),
                "adapter",
                f"{adapter}: no {name}, expected a folder with an adapter in PEFT's format",
            )
        refuse_if(
            adapter is not None and self.checkpoint.quantizations,
            "adapter",
            "not with weights that are quantised, which merging would round again: expected the "
            "model before that",
        )
        if adapter is not None:
            files.read_object(Path(adapter, ADAPTER_CONFIG), "the config of an adapter")
            tensor_bytes(Path(adapter, ADAPTER_WEIGHTS))

    @property
    def expects_grades(self) -> bool:
        return self.options.scoring == "expected"

    def check_folder(self) -> None:
        super().check_folder()
        read_config(self.checkpoint.folder)

    def deciding(self, dtype: str) -> strict_json.JsonObject:
        params = super().deciding(dtype)
        params.pop("adapter", None)  # its content decides
        return params

    def compose(self, where: Where, digests: Digests) -> Composition:
        """Return what it consists of, including how it decodes, since other kernels round
        differently, and the adapter's content.
        """
        composition = super().compose(where, digests)
        is_padded = (
            self.options.attention != "auto"
            or self.gpus > 1
            or unpackable(read_config(self.checkpoint.folder))
        )
        composition.computation["decoder"] = "padded" if is_padded else "packed"
        if self.options.adapter is not None:
            composition.computation["adapter"] = digests.of(
                Path(self.options.adapter), ADAPTER_FILES, is_sent=True
            )
        return composition

    @property
    def requirements(self) -> Requirements:
        """Packages of an adapter, of quantised weights and of attention kernels count if they are
        used.

        Scipy is for losses of object detection, which transformers imports with every model;
        scikit-learn, which needs it, is for decoding with an assistant.
        """
        packages: tuple[str, ...] = self.libraries
        unused_packages: tuple[str, ...] = ("scipy", "sklearn")
        if self.options.adapter:
            packages += ("peft",)
        else:
            unused_packages += ("peft",)
        packages += tuple(attention_packages(self.options.attention))
        packages += tuple(quantized.packages(self.checkpoint.quantizations))
        return Requirements(packages=packages, unused_packages=unused_packages)
