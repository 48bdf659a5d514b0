"""Names on the Hugging Face hub of editors and judges that configs often name, without a look at
the hub.
"""

from itertools import product

from pytest_imgedit.core.text import did_you_mean

#: The pipeline of each editor.
PIPELINES = {
    "black-forest-labs/FLUX.1-Kontext-dev": "FluxKontextPipeline",
    "timbrooks/instruct-pix2pix": "StableDiffusionInstructPix2PixPipeline",
    "Qwen/Qwen-Image-Edit": "QwenImageEditPipeline",
    "Qwen/Qwen-Image-Edit-2509": "QwenImageEditPlusPipeline",
    "Qwen/Qwen-Image-Edit-2511": "QwenImageEditPlusPipeline",
}
_OF_2_5 = [f"Qwen/Qwen2.5-VL-{size}-Instruct" for size in ("3B", "7B", "32B", "72B")]
_SIZES = ("2B", "4B", "8B", "32B", "30B-A3B", "235B-A22B")
_OF_3 = [
    f"Qwen/Qwen3-VL-{size}-{kind}{precision}"
    for size, kind, precision in product(_SIZES, ("Instruct", "Thinking"), ("", "-FP8"))
]
NAMES = (*PIPELINES, *_OF_2_5, *_OF_3)
#: Names that the hub has never had, with the one that is meant.
WRONG = {
    "Qwen/Qwen3-VL-30B-Instruct": "Qwen/Qwen3-VL-30B-A3B-Instruct",
    "Qwen/Qwen3-VL-235B-Instruct": "Qwen/Qwen3-VL-235B-A22B-Instruct",
}


def remark(name: str) -> str:
    """Say that a name of Qwen is unknown if it is close to a known one; otherwise return "".

    Folders, revisions and other owners are not checked.
    """
    if not name.startswith("Qwen/") or name.partition("@")[0] in NAMES:
        return ""
    guess = did_you_mean(name, NAMES)
    return f"no name known here{guess}" if guess else ""
