"""Prints the table of docs/pipelines.md from `pytest_imgedit/kinds/adapters.py` and the installed
diffusers.

python tools/pipeline_table.py
"""

from __future__ import annotations

from pytest_imgedit.kinds.adapters import ADAPTERS, Adapter, call_signature

HEADER = (
    "pipeline",
    "source goes to",
    "prompt",
    "size of the edit",
    "output",
    "guidance",
    "negative prompt",
    "needs",
)


def row(name: str, adapter: Adapter) -> tuple[str, ...]:
    """One row of the table."""
    call = call_signature(name)
    defaults = {} if call is None else call.defaults
    scales = {
        key: value
        for key, value in defaults.items()
        if "guidance_scale" in key or key == "true_cfg_scale"
    }
    guidance = [
        f"`{key}` {value:g}" for key, value in scales.items() if isinstance(value, int | float)
    ]
    negative = "–"
    if call is not None and "negative_prompt" in call.annotations:
        negative = (
            '`" "` while `true_cfg_scale` > 1'
            if "true_cfg_scale" in call.annotations
            else "the pipeline's own"
        )
    field = f"`.{adapter.output}`" + (", last frame" if adapter.output == "frames" else "")
    source = f"`{adapter.image}`" + (", a list of one" if adapter.listed else "")
    needs = ", ".join(f"`{package}`" for package in adapter.needs) or "–"
    wrapping = adapter.wrapping.replace("|", "\\|")
    prompt = f"instruction, `{wrapping}`" if wrapping else "instruction"
    return (
        f"`{name}`",
        source,
        prompt,
        adapter.size,
        field,
        ", ".join(guidance) or "–",
        negative,
        needs,
    )


def table() -> str:
    """The table in Markdown."""
    rows = [row(name, ADAPTERS[name]) for name in sorted(ADAPTERS)]
    lines = [HEADER, ("---",) * len(HEADER), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(table())
