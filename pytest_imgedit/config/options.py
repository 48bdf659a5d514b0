"""The plugin's options: one table that declares them, and texts SECTION.KEY=VALUE; imports nothing
heavy.
"""

import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from pytest_imgedit.core.errors import UsageError

#: The only ini key. It names the config, which holds everything else.
INI_KEY = "imgedit_config"
#: Raw settings by section and key.
Tables = dict[str, dict[str, Any]]
#: What an option can need: items that an evaluation is made for, or scores of a judge.
Need = Literal["items", "scores"]


@dataclass(frozen=True)
class Option:
    """One `--imgedit-NAME` option with its key in the TOML config.

    Without what it `needs`, a session with the option is refused.
    """

    name: str
    help: str
    _: KW_ONLY
    toml: str | None = None
    metavar: str = "VALUE"
    kind: Literal["value", "flag", "list"] = "value"
    needs: tuple[Need, ...] = ()

    @property
    def dest(self) -> str:
        return f"imgedit_{self.name.replace('-', '_')}"

    @property
    def flag(self) -> str:
        return f"--imgedit-{self.name}"


OPTIONS = (
    Option(
        "config",
        "TOML file with [suite] [editor] [judge] [judges.NAME] [metrics.NAME] [workers] [gates] "
        "[protocols.NAME]",
        metavar="FILE",
    ),
    Option(
        "set",
        "override one TOML key, such as editor.num_inference_steps=10",
        metavar="KEY=VALUE",
        kind="list",
    ),
    Option(
        "suite",
        "scenes, scenes:full, scenes:n=N,seed=S, a JSON/JSONL/CSV/TOML file, gedit:DIR, "
        "gedit-v2:DIR, genarena:DIR, imgedit:DIR, kris:DIR, omnicontext:DIR, risebench:DIR, "
        "re-edit:DIR, seeds:FILE "
        "(default: scenes)",
        toml="suite.spec",
        metavar="SPEC",
    ),
    Option(
        "editor",
        "scenes, diffusers:MODEL, openai-images:URL#MODEL, folder:DIR, folder:DIR?PATTERN, "
        "identity, oracle, blend, damaged, shuffled, "
        "blank, noise, package.module:Class (default: scenes)",
        toml="editor.spec",
        metavar="SPEC",
    ),
    Option(
        "judge",
        "scenes, qwen-vl:MODEL, openai:URL#MODEL, reference, none (edits only), "
        "package.module:Class (default: scenes); repeatable, further judges score the same edits",
        metavar="SPEC",
        kind="list",
    ),
    Option(
        "metric",
        "a metric of each edit: psnr, ssim, lpips, clip-image:MODEL, clip-text:MODEL, dino:MODEL, "
        "http-score:URL, package.module:Class; repeatable, or joined by commas: psnr,ssim",
        metavar="SPEC",
        kind="list",
    ),
    Option(
        "variant",
        "strict: a reply that cannot be read is an error; compat: as the authors' script does it "
        "(default: strict)",
        toml="judge.variant",
        metavar="VARIANT",
    ),
    Option(
        "gpus",
        "0-5, or 0,2 or 0-3,6, or auto (all visible, else CPU), or none",
        toml="workers.gpus",
        metavar="GPUS",
    ),
    Option(
        "gpus-per-worker",
        "shard one editor over K GPUs (default: 1)",
        toml="workers.gpus_per_worker",
        metavar="K",
    ),
    Option(
        "executor",
        "where workers run: local or ray (default: local)",
        toml="workers.executor",
        metavar="NAME",
    ),
    Option("stage", "all, edit, score or report (default: all)", toml="run.stage", metavar="STAGE"),
    Option(
        "shard",
        "run shard I of N, by a hash of pair ids; imgedit merge joins the shards and decides "
        "their gates",
        toml="run.shard",
        metavar="I/N",
    ),
    Option("limit", "only the first N pairs of each category", toml="suite.limit", metavar="N"),
    Option(
        "seeds",
        "edits per pair, averaged within the pair (default: 1)",
        toml="editor.seeds",
        metavar="N",
    ),
    Option(
        "out", "folder of the store and the runs (default: .imgedit)", toml="run.out", metavar="DIR"
    ),
    Option("fresh", "ignore cached edits and verdicts", toml="run.fresh", kind="flag"),
    Option(
        "reuse",
        "which cached results count: those of the exact environment, of a compatible one, or any "
        "(default: compatible)",
        toml="run.reuse",
        metavar="POLICY",
    ),
    Option(
        "fail-under",
        "fail if the mean of FIELD ([MEASURE@]GROUP, such as overall or physics) is under MIN",
        toml="gates.fail_under",
        metavar="FIELD:MIN",
        kind="list",
        needs=("items", "scores"),
    ),
    Option(
        "max-drop",
        "fail if the mean of FIELD fell by more than DROP; needs --imgedit-compare",
        toml="gates.max_drop",
        metavar="FIELD:DROP",
        kind="list",
        needs=("items", "scores"),
    ),
    Option(
        "compare",
        "compare with a baseline (its NAME), a run (its name, its id or latest), or a path",
        toml="gates.compare",
        metavar="REF",
        needs=("items", "scores"),
    ),
    Option(
        "duel",
        "ask the judge which edit is better, this run's or that of --imgedit-compare",
        toml="gates.duel",
        kind="flag",
        needs=("items", "scores"),
    ),
    Option(
        "min-win",
        "fail if the share of duels that FIELD wins is under SHARE; needs --imgedit-duel (default: "
        "overall:0.5)",
        toml="gates.min_win",
        metavar="FIELD:SHARE",
        kind="list",
        needs=("items", "scores"),
    ),
    Option(
        "name", "name the run, so that commands find it by NAME", toml="run.name", metavar="NAME"
    ),
    Option(
        "save",
        "save the run as the baseline NAME if it passes its gates",
        toml="run.save",
        metavar="NAME",
        needs=("items", "scores"),
    ),
    Option(
        "save-edits",
        "keep the edits of the saved baseline too, for --imgedit-duel",
        toml="run.save_edits",
        kind="flag",
        needs=("items",),
    ),
    Option(
        "max-errors",
        "number or fraction of pairs that may end without a score (default: 0)",
        toml="gates.max_errors",
        metavar="N",
    ),
    Option(
        "max-collapsed",
        "number or fraction of pairs that may drop by gates.collapse (3) points or more (default: "
        "0)",
        toml="gates.max_collapsed",
        metavar="N",
        needs=("items",),
    ),
    Option(
        "min-coverage",
        "fail if less than this fraction of the baseline's pairs is compared (default: 0)",
        toml="gates.min_coverage",
        metavar="FRACTION",
        needs=("items",),
    ),
    Option(
        "until",
        "decided: edit in an order given by hashes, and stop once every gate on a mean is decided "
        "(default: all)",
        toml="gates.until",
        metavar="WHEN",
    ),
    Option(
        "inconclusive",
        "fail: a gate that lacks pairs fails the run, for releases (default: warn)",
        toml="gates.inconclusive",
        metavar="WHAT",
    ),
    Option(
        "controls",
        "try the judge on edits of known quality (default: if a gate is set)",
        toml="judge.controls",
        kind="flag",
        needs=("items", "scores"),
    ),
    Option(
        "judge-repeats",
        "judge every edit K more times, to measure the judge's noise",
        toml="judge.repeats",
        metavar="K",
        needs=("scores",),
    ),
    Option("json", "an extra copy of results.json", toml="run.json_path", metavar="PATH"),
    Option("md", "an extra copy of the Markdown report", toml="run.md_path", metavar="PATH"),
    Option(
        "html",
        "an extra copy of the HTML report, with a folder of thumbnails",
        toml="run.html_path",
        metavar="PATH",
    ),
    Option(
        "html-embed",
        "write HTML reports as one file, with the thumbnails inside",
        toml="run.html_embed",
        kind="flag",
    ),
)


def options_needing(need: Need) -> list[Option]:
    """Return the options that need this, in the order of the table."""
    return [option for option in OPTIONS if need in option.needs]


def further_name(spec: str) -> str:
    """Return the name of a further judge or a metric: the last part of its spec that is a name,
    such as `Qwen3-VL-30B-A3B` of `qwen-vl:Qwen/Qwen3-VL-30B-A3B`; empty if none is.
    """
    for part in reversed(re.findall(r"[\w.-]+", spec, re.ASCII)):
        name = str(part).strip(".-")
        if name:
            return name
    return ""


def assign(merged: Tables, assignments: Iterable[str], flag: str = "--imgedit-set") -> None:
    """Set the keys that texts SECTION.KEY=VALUE name in `merged`; a dot in KEY is a table.

    Raises `UsageError`, which names `flag`, for a text of another form, a key of `run` other than
    `reuse`, and a table that is a value already.
    """
    from pytest_imgedit.config.toml_file import parse_value

    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        section, dot, name = key.strip().partition(".")
        if not (equals and dot and name) or (section == "run" and name != "reuse"):
            raise UsageError(
                f"{flag}={assignment}: expected SECTION.KEY=VALUE with a section of the TOML config"
            )
        target = merged.setdefault(section, {})
        *parents, last = name.split(".")
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise UsageError(
                    f"{flag}={assignment}: {section}.{parent} is {target!r}, expected a table"
                )
        target[last] = parse_value(text)
