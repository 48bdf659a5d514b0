"""A judge on GPUs of its own against models that change on all GPUs, and what estimates said.

    python perf/judge_gpus.py --models /a/folder/in/memory
    python perf/judge_gpus.py --shapes judging --judge-gpus 2
    python perf/judge_gpus.py --tiny

Qwen-Image-Edit and Qwen3-VL-30B-A3B of random weights at full size, on two or more GPUs. `editing`
takes most of its time for edits; in `judging`, edits of two steps and verdicts of many tokens take
about as long. Each is run both ways, after a run that leaves the judge's compiled kernels on disk.
The seconds are those from the start of the workers to the last verdict, beside those of the whole
process. The estimates are made of the results of the run that swaps; the line is that of the plan
of the other one. On a machine with fewer GPUs the run that swaps is the only one, and the estimates
are for two GPUs.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from checkpoints import build, write_suite
from harness import evaluate, finish, parser, scratch, table

from pytest_imgedit.core.results import Results
from pytest_imgedit.run.durations import Durations, pace_of

#: Of each shape: edits a GPU, steps of an edit, tokens of a verdict, and verdicts of a batch.
SHAPES = {
    "editing": {"edits": 5, "steps": 5, "tokens": 16, "batch_size": 4},
    "judging": {"edits": 7, "steps": 2, "tokens": 96, "batch_size": 1},
}
TINY = {
    "editing": {"edits": 2, "steps": 2, "tokens": 4, "batch_size": 2},
    "judging": {"edits": 2, "steps": 2, "tokens": 16, "batch_size": 1},
}
WAYS = ("swap", "apart")
#: The judge, whose random weights reply with no grades: they are put in place of what it replies.
READABLE = """
from dataclasses import replace
from pytest_imgedit.kinds.qwen_vl import QwenVLJudge

class Readable(QwenVLJudge):
    def answer(self, questions, prepared=None):
        grades = "instruction: 5\\npreservation: 5\\nrealism: 5"
        answers = super().answer(questions, prepared)
        return [replace(answer, reply=grades, cut=False) for answer in answers]
"""


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=list(SHAPES))
    described.add_argument("--judge-gpus", type=int, default=1, help="how many it has for itself")
    described.add_argument("--edits", type=int, help="edits a GPU, in place of those of the shape")
    described.add_argument("--no-warm-up", action="store_true", help="kernels are compiled already")
    options = described.parse_args()
    gpus = torch.cuda.device_count()
    if not options.tiny and not 0 < options.judge_gpus < gpus:
        described.error(f"--judge-gpus={options.judge_gpus}: expected fewer than the {gpus} GPUs")
    ways = WAYS if 0 < options.judge_gpus < gpus else WAYS[:1]
    gpus = max(2, gpus)
    figures: dict[str, Any] = {"gpus_used": gpus, "judge_gpus": options.judge_gpus}
    rows: list[tuple[Any, ...]] = []
    lines = []
    with scratch(options) as folder:
        if not (options.models / "judge").exists():
            build(options.models, ["judge"], options.tiny)
        for name in ("checkpoints.py", "drawn.py"):
            shutil.copy(Path(__file__).parent / name, folder)
        (folder / "readable.py").write_text(READABLE)
        if not options.no_warm_up:
            warm_up(options, folder)
        for name in options.shapes:
            shape = (TINY if options.tiny else SHAPES)[name]
            shape = shape if options.edits is None else {**shape, "edits": options.edits}
            edits = shape["edits"] * gpus
            documents = {way: run(options, folder, shape, edits, way) for way in ways}
            durations = durations_of(documents["swap"], edits)
            estimates = {
                "swap": durations.one_after_the_other(gpus),
                "apart": durations.side_by_side(gpus, options.judge_gpus),
            }
            figures[name] = {"edits": edits, "estimates": estimates, "paces": repr(durations)}
            figures[name]["best"] = durations.best(gpus)
            for way, seconds in estimates.items():
                if way not in documents:
                    rows.append((name, way, "-", "-", seconds))
                    continue
                document = documents[way]
                lines += [f"{name}, {way}: {line}" for line in document["lines"]]
                timing = document["timing"]
                measured = timing["edit_s"] + timing["swap_s"] + timing["score_s"]
                rows.append((name, way, document["wall_s"], measured, seconds))
                figures[name][way] = {
                    "wall_s": document["wall_s"],
                    "measured_s": measured,
                    "timing": timing,
                    "workers": document["workers"],
                    "lines": document["lines"],
                }
            finish(options, figures)
    print(f"{gpus} GPUs, {options.judge_gpus} of which judge alone where models are apart")
    table(("shape", "way", "process s", "workers s", "estimate s"), rows)
    for line in lines:
        print(line)
    finish(options, figures)


def warm_up(options: Any, folder: Path) -> None:
    """Judge a few edits that take no time."""
    side = 64 if options.tiny else 1024
    suite = write_suite(folder / "few", [(side, side)] * 4)
    evaluate(
        folder,
        f"--imgedit-suite={suite}",
        "--imgedit-editor=identity",
        "--imgedit-judge=readable:Readable",
        f"--imgedit-set=judge.model={options.models / 'judge'}",
        f"--imgedit-gpus={'0' if torch.cuda.is_available() else 'none'}",
        "--imgedit-set=judge.reasks=0",
        "--imgedit-set=judge.max_new_tokens=16",
        "--imgedit-set=judge.batch_size=4",
        "--imgedit-set=judge.controls=false",
    )


def run(options: Any, folder: Path, shape: dict[str, int], edits: int, way: str) -> dict[str, Any]:
    """Make and judge edits in one way; return the results with the lines of the plan."""
    side = 64 if options.tiny else 1024
    suite = write_suite(folder / f"suite-{edits}", [(side, side)] * edits)
    call = {"num_inference_steps": shape["steps"], "true_cfg_scale": 4.0}
    call |= {"height": 64, "width": 64} if options.tiny else {}
    arguments = [f"--imgedit-set=editor.{key}={value}" for key, value in call.items()]
    if way == "apart":
        gpus = torch.cuda.device_count()
        first = gpus - options.judge_gpus
        own = f"{first}-{gpus - 1}" if options.judge_gpus > 1 else str(first)
        arguments.append(f"--imgedit-set=workers.judge_gpus='{own}'")
    document = evaluate(
        folder,
        f"--imgedit-suite={suite}",
        "--imgedit-editor=drawn:Drawn",
        f"--imgedit-set=editor.tiny={str(options.tiny).lower()}",
        "--imgedit-judge=readable:Readable",
        f"--imgedit-set=judge.model={options.models / 'judge'}",
        f"--imgedit-set=judge.max_new_tokens={shape['tokens']}",
        f"--imgedit-set=judge.batch_size={shape['batch_size']}",
        "--imgedit-set=judge.reasks=0",
        "--imgedit-set=judge.controls=false",
        "--imgedit-fresh",
        *arguments,
    )
    log = folder / ".imgedit" / "runs" / document["run"]["id"] / "run.log"
    lines = [line for line in log.read_text("utf-8").splitlines() if "judging take" in line]
    return {**document, "lines": lines}


def durations_of(document: dict[str, Any], edits: int) -> Durations:
    """Return estimates by the results of a run."""
    fields = {name: document[name] for name in document if name not in ("wall_s", "lines")}
    results = Results.model_validate(fields)
    editor, judge = pace_of("editor", results), pace_of("judge", results)
    if editor is None or judge is None:
        raise SystemExit(str([item.error for item in results.items if item.error][:1]))
    return Durations(editor=editor, judge=judge, edits=edits)


if __name__ == "__main__":
    main()
