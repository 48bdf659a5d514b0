"""Which keys of a flow-matching scheduler change nothing, and which shift it comes down to; imports
neither torch nor diffusers.

In diffusers, `set_timesteps` of these classes shifts the sigmas by the `mu` of the pipeline's call
where `use_dynamic_shifting` is set, and by `shift` where it is not, never by both. So does
`__init__`, which shifts by `shift` alone. From what else a configuration holds, the pipeline
computes `mu`; the scheduler does not read that.
"""

import math
from collections.abc import Sequence
from typing import Any

from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.kinds.pipeline_index import pipeline_source

#: The classes of which this is known.
CLASSES = ("FlowMatchEulerDiscreteScheduler", "FlowMatchLCMScheduler")
#: The key that says by what the sigmas are shifted.
DYNAMIC = "use_dynamic_shifting"
#: What pipelines compute `mu` from. With a base and a largest shift that are equal, those which
#: read all four compute this value, whatever the size of the picture.
OF_MU = ("base_shift", "max_shift", "base_image_seq_len", "max_image_seq_len")
#: All keys that choose a shift.
OF_SHIFT = (DYNAMIC, "shift", "time_shift_type", *OF_MU)
_SETTING = "editor.scheduler."


def idle_keys(name: str, config: JsonObject, pipeline: str) -> frozenset[str]:
    """Return the keys of a scheduler's configuration that change no schedule of a pipeline as the
    other keys are.
    """
    if name not in CLASSES:
        return frozenset()
    if not config.get(DYNAMIC):
        return frozenset({"time_shift_type", *OF_MU})
    return frozenset({"shift", *_unread(pipeline)})


def why_idle(key: str, value: Any, name: str, config: JsonObject, pipeline: str) -> str:
    """Return why a key of `idle_keys` changes nothing, and what to write, in one line."""
    found = f"found {value!r}, which changes nothing"
    reads_all = not _unread(pipeline)
    if not config.get(DYNAMIC):
        remedy = f", or {_SETTING}{DYNAMIC}=true beside it" if reads_all else ""
        return (
            f"{found}: {name} shifts by its shift while {DYNAMIC} is false, "
            f"expected {_SETTING}shift{remedy}"
        )
    if key != "shift":
        return (
            f"{found}: {pipeline} computes the shift without it, "
            f"expected {_SETTING}shift and {_SETTING}{DYNAMIC}=false"
        )
    remedy = ""
    if reads_all and value > 0:
        is_exponential = config.get("time_shift_type") == "exponential"
        fixed = math.log(value) if is_exponential else float(value)
        remedy = f", or {_SETTING}base_shift={fixed} and {_SETTING}max_shift={fixed} in its place"
    return (
        f"{found}: {name} shifts as the pipeline says while {DYNAMIC} is true, "
        f"expected {_SETTING}{DYNAMIC}=false beside it{remedy}"
    )


def fixed_shift(name: str, config: JsonObject, pipeline: str) -> float | None:
    """Return the shift of a scheduler if it is the same for all sizes of pictures, else `None`."""
    if name not in CLASSES:
        return None
    if not config.get(DYNAMIC):
        return float(config["shift"])
    base, largest = config.get("base_shift"), config.get("max_shift")
    if base is None or base != largest or _unread(pipeline):
        return None
    return math.exp(base) if config.get("time_shift_type") == "exponential" else float(base)


def _unread(pipeline: str) -> Sequence[str]:
    """Return what a pipeline does not compute `mu` from: keys that its source does not name."""
    path = pipeline_source(pipeline)
    text = path.read_text("utf-8") if path else ""
    return [key for key in OF_MU if text and key not in text]
