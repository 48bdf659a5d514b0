"""Compare the questions that a benchmark's own code puts to a judge with those of this package.

    python perf/upstream_questions.py gedit CLONE_OF_STEP1X_EDIT
    python perf/upstream_questions.py imgedit CLONE_OF_IMGEDIT
    python perf/upstream_questions.py kris CLONE_OF_KRIS_BENCH
    python perf/upstream_questions.py omnicontext CLONE_OF_OMNIGEN2
    python perf/upstream_questions.py risebench CLONE_OF_RISEBENCH
    python perf/upstream_questions.py genarena CLONE_OF_GENARENA
    python perf/upstream_questions.py gedit-v2 CLONE_OF_GEDITBENCH_V2

The miniatures of the tests are judged by the functions of the clone, whose calls to a server are
caught, with the clone's prompts. Texts and images must be the same, in the same order; those of
OmniContext also in their pixels after JPEG. The script fails on the first question that is not.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import logging
import math
import os
import sys
import tempfile
import typing
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pydantic
import yaml
from PIL import Image, ImageOps
from upstream_scorers import functions_of

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.images import decode
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.requests import Preparation
from pytest_imgedit.protocols.gedit_v2 import DIMENSIONS
from pytest_imgedit.protocols.loading import ARENAS, load_duel_protocol, load_protocol
from pytest_imgedit.suites.base import load_suite

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

#: Texts, and images by their paths; the edit is `edited`.
Asked = list[str]
logging.disable()


def kris_of(clone: Path, folder: Path, pairs: list[EditPair]) -> Iterator[list[Asked]]:
    """Yield what the clone asks about each pair."""
    prompts = functions_of(
        next(clone.rglob("utils/prompts.py")), *_names(clone, "utils/prompts.py")
    )
    modules = {
        "metrics_common.py": "evaluate_images",
        "metrics_knowledge.py": "evaluate_images",
        "metrics_view_change.py": "evaluate_images",
        "metrics_multi_element.py": "evaluate_multi_element_images",
        "metrics_temporal_prediction.py": "evaluate_temporal_images",
    }
    asked: list[Asked] = []

    def create(messages: list[Any], **_: Any) -> Any:
        parts = messages[0]["content"]
        asked.append([part.get("text") or part["image_url"]["url"] for part in parts])
        message = SimpleNamespace(content="")
        return SimpleNamespace(choices=[SimpleNamespace(message=message)])

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    root = folder / "KRIS_Bench"
    results = folder / "results"
    for pair in pairs:
        (results / "model" / pair.category).mkdir(parents=True, exist_ok=True)
        (results / "model" / pair.category / f"{pair.own_id}.png").touch()
    code = {}
    for name, function in modules.items():
        path = next(clone.rglob(name))
        code[name] = (
            functions_of(
                path,
                *_names(clone, name),
                **vars(prompts),
                os=os,
                time=SimpleNamespace(sleep=lambda _: None),
                client=client,
                encode_image_to_base64=str,
                BENCH_DIR=str(root),
                RESULTS_DIR=str(results),
                extract_score_and_reason=lambda *_, **__: (1, ""),
                extract_consistency_score_and_reason=lambda _: (1, ""),
                extract_instruction_score_and_reason=lambda _: (1, ""),
                extract_quality_score_and_reason=lambda _: (1, ""),
            ),
            function,
        )
    for pair in pairs:
        found = next(
            (space, function)
            for space, function in code.values()
            if pair.category in space.CATEGORIES
        )
        asked.clear()
        space, function = found
        getattr(space, function)("model", pair.category, pair.own_id, space.METRICS)
        yield [list(each) for each in asked]


def rise_of(clone: Path, folder: Path, pairs: list[EditPair]) -> Iterator[list[Asked]]:
    """Yield what the clone asks about each pair."""
    texts = functions_of(next(clone.rglob("utils.py")), *_names(clone, "utils.py"))
    asked: list[Asked] = []

    def generate(message: list[Any], **_: Any) -> tuple[int, str, None]:
        asked.append([part["value"] for part in message])
        return 0, "", None

    code = functions_of(
        next(clone.rglob("gpt_eval.py")),
        *("eval_vanilla", "find_image"),
        **vars(texts),
        osp=os.path,
        pd=SimpleNamespace(isna=lambda value: value is None),
        gpt_generate=generate,
    )
    code.eval_vanilla.__globals__["gpt_generate"] = generate
    path = next(folder.rglob("datav2_total_w_subtask.json"))
    rows = json.loads(path.read_text())
    columns = {name for row in rows for name in row}
    for row in rows:
        images = folder / "outputs" / "images" / row["category"]
        images.mkdir(parents=True, exist_ok=True)
        (images / f"{row['index']}.png").touch()
        asked.clear()
        code.eval_vanilla(
            {name: row.get(name) for name in columns}, path.parent, folder / "outputs"
        )
        yield [list(map(str, each)) for each in asked]


def gedit_of(clone: Path, folder: Path, pairs: list[EditPair]) -> Iterator[list[Asked]]:
    """Yield what the clone asks about each pair, by its prompts and the order of its GPT client."""
    prompts = functions_of(
        next(clone.rglob("vie_prompts.py")), *_names(clone, "viescore/vie_prompts.py")
    )
    space = vars(prompts)
    context = space["_context_no_delimit"]
    for pair in pairs:
        rule = space["_prompts_0shot_two_image_edit_rule"]
        text = "\n".join([context, rule, space["_prompts_0shot_tie_rule_SC"]])
        text = text.replace("<instruction>", pair.instruction)
        quality = "\n".join([context, space["_prompts_0shot_rule_PQ"]])
        yield [[text, "source", "edited"], [quality, "edited"]]


def imgedit_of(clone: Path, folder: Path, pairs: list[EditPair]) -> Iterator[list[Asked]]:
    """Yield what the clone asks about each pair."""
    asked: list[Asked] = []

    def create(messages: list[Any], **_: Any) -> None:
        parts = messages[0]["content"]
        asked.append([part.get("text") or part["image_url"]["url"] for part in parts])

    completions = SimpleNamespace(create=create)
    client = SimpleNamespace(chat=SimpleNamespace(completions=completions))
    code = functions_of(next(clone.rglob("basic_bench.py")), "call_gpt", OpenAI=lambda **_: client)
    code.call_gpt.__globals__["image_to_base64"] = str
    prompts = json.loads(next(clone.rglob("prompts.json")).read_text())
    for pair in pairs:
        asked.clear()
        code.call_gpt("source", "edited", pair.instruction, pair.category, prompts)
        yield [list(each) for each in asked]


def omni_of(clone: Path, folder: Path, pairs: list[EditPair]) -> Iterator[list[Asked]]:
    """Yield what the clone asks about each pair, in every attempt."""
    root = next(clone.rglob("omnicontext/omnicontext_score.py")).parent
    payloads: list[dict[str, Any]] = []

    def post(url: str, json: dict[str, Any], **_: Any) -> Any:
        payloads.append(json)
        message = {"content": '{"score": 5, "reasoning": "x"}'}
        return SimpleNamespace(json=lambda: {"choices": [{"message": message}]})

    client = functions_of(
        root / "openai_util.py",
        *_names(clone, "omnicontext/openai_util.py"),
        **dict.fromkeys(("Union", "Optional", "Tuple", "List"), typing.Any),
        requests=SimpleNamespace(post=post),
        base64=base64,
        BytesIO=io.BytesIO,
        Image=Image,
        ImageOps=ImageOps,
        os=os,
    )
    generator = functions_of(
        root / "prompt_generator.py",
        "PromptGenerator",
        *_names(clone, "omnicontext/prompt_generator.py"),
    )
    parser = functions_of(root / "json_util.py", *_names(clone, "omnicontext/json_util.py"), os=os)
    loop = functions_of(
        root / "omnicontext_score.py",
        "OmniContextScore",
        PromptGenerator=generator.PromptGenerator,
        ask_gpt4o=client.ask_gpt4o,
        mllm_output_to_dict=parser.mllm_output_to_dict,
    )
    script = functions_of(
        root / "test_omnicontext_score.py", "process_single_item", math=math, Image=Image
    )
    edited = folder / "edited.png"
    Image.effect_noise((101, 75), 60).convert("RGB").save(edited)
    for pair in pairs:
        encoded = {name: image.read() for name, image in pair.images.items()}
        encoded["edited"] = edited.read_bytes()
        item = {
            "key": pair.own_id,
            "task_type": pair.category,
            "instruction": pair.instruction,
            "instruction_language": pair.fields["language"],
            "input_images": [
                Image.open(io.BytesIO(image.read())) for image in pair.images.values()
            ],
            "output_image_path": edited,
        }
        payloads.clear()
        script.process_single_item(item, loop.OmniContextScore("", ""))
        asked = []
        for payload in payloads:
            assert payload["max_tokens"] == 1400
            assert "temperature" not in payload
            (message,) = payload["messages"]
            asked.append(list(_omni_parts(message["content"], encoded)))
        yield asked


def _omni_parts(parts: list[Any], encoded: dict[str, bytes]) -> Iterator[str]:
    """Yield the texts of a question, and of its images the names of those that this package sends
    in their places, if the pixels are the same.
    """
    preparation = Preparation(codec="jpeg", source_pixels=1024 * 1024, source_multiple=16)
    images = preparation.resized({name: decode(data) for name, data in encoded.items()})
    names = iter(images)
    for part in parts:
        if part["type"] == "text":
            yield part["text"]
            continue
        name = next(names)
        kind, _, data = part["image_url"]["url"].partition(";base64,")
        theirs = decode(base64.b64decode(data))
        is_same = theirs.tobytes() == preparation.sent(images[name]).tobytes()
        is_same = is_same and theirs.size == images[name].size and kind == "data:image/jpeg"
        yield name if is_same else f"{name} with other pixels"


def genarena_of(clone: Path, folder: Path, pairs: list[EditPair]) -> Iterator[list[Asked]]:
    """Yield what the clone asks about each pair with two edits."""
    code = functions_of(
        next(clone.rglob("prompts/mmrb2.py")),
        *("PROMPT_TEXT", "build_prompt"),
        **dict.fromkeys(("Any", "Union"), typing.Any),
        _create_image_content=lambda name: {"image_url": {"url": name}},
    )
    for pair in pairs:
        (message,) = code.build_prompt(pair.instruction, pair.source_names, "first", "second")
        assert message["role"] == "user"
        yield [[part.get("text") or part["image_url"]["url"] for part in message["content"]]]


def gedit_v2_of(clone: Path, folder: Path, pairs: list[EditPair]) -> Iterator[list[Asked]]:
    """Yield what the clone asks about each pair with two edits, in the order of `DIMENSIONS`; a
    system prompt comes before the parts of the user's turn.
    """
    wrapped = {"ImageWrapper": lambda name: SimpleNamespace(as_data_url=lambda: name)}
    template = functions_of(
        next(clone.rglob("schemas/prompt_template.py")),
        *("PromptTemplate",),
        BaseModel=pydantic.BaseModel,
        Field=pydantic.Field,
        jinja2=jinja2,
        **wrapped,
    )
    types = {"Dict": dict, "Any": typing.Any, "List": list}
    template.PromptTemplate.model_rebuild(_types_namespace=types)
    adapters = functions_of(
        next(clone.rglob("primitives/prompt_adapters.py")),
        *("SEPARATOR_RULES", "get_separator", "BasePromptAdapter", "OpenAIStylePromptAdapter"),
        ABC=object,
        abstractmethod=lambda method: method,
        PROMPT_ADAPTER_REGISTRY=SimpleNamespace(register=lambda _: lambda kind: kind),
        **wrapped,
    )
    for pair in pairs:
        asked = []
        for dimension in DIMENSIONS:
            path = next(clone.rglob(f"assessment/{dimension}/pairwise/v1.yaml"))
            system, user = adapters.OpenAIStylePromptAdapter().build_payload(
                template.PromptTemplate(**yaml.safe_load(path.read_text("utf-8"))),
                instruction=pair.instruction,
                input_image="source",
                edited_images=["first", "second"],
            )
            parts = [
                part["text"] if part["type"] == "text" else part["image_url"]["url"]
                for part in user["content"]
            ]
            asked.append([system["content"], *parts])
        yield asked


#: Names that the clone sets from its command line, or that reach for a server.
_GIVEN = {
    *("parser", "args", "client", "api_key", "base_url", "BENCH_DIR", "RESULTS_DIR", "OUTPUT_DIR"),
    *("LANG", "METRICS_FILENAME", "MODELS", "encode_image_to_base64"),
}


def _names(clone: Path, name: str) -> list[str]:
    """Names of the functions and constants of a module of the clone."""
    import ast

    names = []
    for node in ast.parse(next(clone.rglob(name)).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.append(node.targets[0].id)
    return [name for name in names if name not in _GIVEN]


def _named(text: str, paths: dict[str, str], folder: Path) -> str:
    """Return a text, or for an image its name in this package."""
    path = text.rpartition("base64,")[2] if text.startswith("data:") else text
    if path in paths:
        return paths[path]
    is_edit = path.startswith((f"{folder}/results", f"{folder}/outputs"))
    return "edited" if is_edit else path


READERS: dict[str, Callable[[Path, Path, list[EditPair]], Iterator[list[Asked]]]] = {
    "gedit": gedit_of,
    "gedit-v2": gedit_v2_of,
    "genarena": genarena_of,
    "imgedit": imgedit_of,
    "kris": kris_of,
    "omnicontext": omni_of,
    "risebench": rise_of,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark", choices=[*READERS])
    parser.add_argument("clone", type=Path)
    args = parser.parse_args()
    miniatures = import_module("miniatures")

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        makers = {
            **miniatures.MAKE,
            "gedit-v2": miniatures.make_gedit_v2,
            "genarena": miniatures.make_genarena,
        }
        makers[args.benchmark](folder)
        is_arena = args.benchmark in ARENAS
        settings = Settings.model_validate(
            {
                "suite": {"spec": f"{args.benchmark}:{folder}"},
                # in which OmniContext asks as often as its authors
                "judge": {
                    "prompts": args.clone,
                    "variant": "compat",
                    "duel_protocol": args.benchmark if is_arena else "duel",
                },
            }
        )
        pairs = list(load_suite(settings.suite).pairs)
        protocol = load_duel_protocol(settings) if is_arena else load_protocol(settings)
        equal = 0
        for pair, theirs in zip(
            pairs, READERS[args.benchmark](args.clone, folder, pairs), strict=True
        ):
            paths = {str(getattr(image, "path", "")): name for name, image in pair.images.items()}
            named = [[_named(text, paths, folder) for text in each] for each in theirs]
            ours = [
                [*filter(None, [call.system]), *(text for _, text in call.parts)]
                for call in protocol.calls(pair)
            ]
            assert ours == named, f"{pair.id}:\n{ours}\n{named}"
            equal += len(ours)
    print(f"{args.benchmark}: {equal} questions about {len(pairs)} pairs are the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
