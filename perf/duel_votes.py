"""What a vote costs beside a verdict: the score stage and the duels of one run, with one judge.

    python perf/duel_votes.py
    python perf/duel_votes.py --tiny

A Qwen3-VL-30B-A3B of random weights on one GPU scores edits of 1024² pictures by the protocol
`aspects` (two images, 16 new tokens) and then decides duels of the same pairs with others (three
images, and `--reason` new tokens: a reason and the choice). A run before it, whose edits are those
others, asks no judge. Random replies cannot be read: they are asked once (`compat`).
"""

from __future__ import annotations

from typing import Any

from checkpoints import build, write_suite
from harness import evaluate, finish, parser, scratch, table

PROTOCOL = """
[[protocols.short.calls]]
name = "duel"
system = "You compare two edits of one source image, made by following one instruction."
user = '''
Source image:
{{{{ source }}}}
Edit A:
{{{{ first }}}}
Edit B:
{{{{ second }}}}
Instruction: {{{{ instruction }}}}
Answer with JSON and nothing else: {{"reason": "<what decides>", "better": "<A or B>"}}
'''
max_new_tokens = {reason}
[protocols.short.calls.reply]
form = "choice"
names = ["score"]
scale = [0, 1]
[protocols.short.score]
item = "score"
scale = [0, 1]
"""


def main() -> None:
    described = parser(__doc__)
    described.add_argument("--items", type=int, default=96)
    described.add_argument("--reason", type=int, default=80, help="new tokens of a vote")
    described.add_argument("--blocks", type=int, help="layers of the judge (default: all)")
    options = described.parse_args()
    items = 8 if options.tiny else options.items
    side = 64 if options.tiny else 1024
    with scratch(options) as folder:
        if not (options.models / "judge").exists():
            build(options.models, ["judge"], options.tiny, options.blocks)
        suite = write_suite(folder / "suite", [(side, side)] * items)
        config = folder / "duels.toml"
        config.write_text(PROTOCOL.format(reason=options.reason))
        common = (
            f"--imgedit-suite={suite}",
            f"--imgedit-config={config}",
            "--imgedit-editor=noise",
            "--imgedit-set=judge.controls=false",
        )
        evaluate(folder, *common, "--imgedit-judge=none", "--imgedit-set=editor.seed=1")
        document = evaluate(
            folder,
            *common,
            f"--imgedit-judge=qwen-vl:{options.models / 'judge'}",
            "--imgedit-set=judge.max_new_tokens=16",
            "--imgedit-set=judge.duel_protocol=short",
            "--imgedit-variant=compat",
            "--imgedit-set=workers.placement=swap",
            "--imgedit-compare=latest",
            "--imgedit-duel",
        )
    timing = document["timing"]
    votes = sum(
        len(seed["votes"]) for pair in document["duel"]["pairs"].values() for seed in pair["seeds"]
    )
    figures: dict[str, Any] = {
        "items": items,
        "verdicts_s": items / timing["score_s"],
        "votes": votes,
        "votes_s": votes / timing["duel_s"],
        "timing": timing,
    }
    finish(options, figures)
    table(
        ("stage", "questions", "seconds", "questions/s"),
        [
            ("score", items, timing["score_s"], figures["verdicts_s"]),
            ("duel", votes, timing["duel_s"], figures["votes_s"]),
        ],
    )


if __name__ == "__main__":
    main()
