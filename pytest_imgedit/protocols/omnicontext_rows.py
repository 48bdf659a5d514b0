"""Numbers that others have published for OmniContext."""

from collections.abc import Iterator, Mapping

from pytest_imgedit.core.results import PublishedRow

TASKS = (
    "single_character",
    "single_object",
    "multi_character",
    "multi_object",
    "multi_character_object",
    "scene_character",
    "scene_object",
    "scene_character_object",
)
#: Pairs of each task.
PAIRS = 50
#: The fourth version of the benchmark's own paper, tables 4 and 7 to 9: the average, then the means
#: of the tasks. Of OmniGen2 the tables give two means of `multi_object`; 7.80 is that of table 8,
#: with which the average comes out. What the paper gives as OmniGen's average, 4.34, is the mean of
#: its three tasks with a scene, so that it is left out.
PAPER = {
    "GPT-4o": (8.80, 8.90, 9.01, 9.07, 8.95, 8.54, 8.90, 8.44, 8.60),
    "OmniGen2": (7.95, 8.19, 8.63, 7.45, 7.80, 7.93, 7.75, 7.91, 7.93),
    "Gemini 2.5 Flash Image": (7.84, 8.62, 8.91, 7.88, 8.92, 7.39, 7.29, 7.05, 6.68),
    "Qwen-Image-Edit-2509": (7.69, 8.35, 9.13, 7.65, 8.85, 7.90, 5.16, 7.75, 6.73),
    "BAGEL": (5.73, 5.48, 7.03, 5.17, 6.64, 6.24, 4.07, 5.71, 5.47),
    "UNO": (4.71, 6.60, 6.83, 2.54, 6.51, 4.39, 2.06, 4.33, 4.37),
    "OmniGen": (None, 7.21, 5.71, 5.65, 5.44, 4.68, 3.59, 4.32, 5.12),
    "Gemini 2.0 Flash Image": (3.62, 5.06, 5.17, 2.91, 2.16, 3.80, 3.02, 3.89, 2.92),
    "FLUX.1 Kontext max": (None, 8.48, 8.68),
    "InfiniteYou": (None, 6.05),
}
#: Emu3.5's paper, table 12, without the rows that it repeats. OmniGen2 is the model of June 2025.
EMU = {
    "Emu3.5": (8.82, 8.72, 9.46, 8.65, 9.09, 8.78, 8.78, 8.89, 8.15),
    "Gemini 2.5 Flash Image Preview": (7.58, 8.52, 9.14, 7.80, 8.64, 6.63, 6.74, 7.11, 6.04),
    "OmniGen2 without reinforcement": (7.18, 8.05, 7.58, 7.11, 7.13, 7.45, 6.38, 6.71, 7.04),
}


def _rows(
    means: Mapping[str, tuple[float | None, ...]], source: str, date: str
) -> Iterator[PublishedRow]:
    """Yield the rows of models, which have the same source; a mean that is `None` has none."""
    for model, values in means.items():
        for row, value in zip(("Average", *TASKS), values, strict=False):
            if value is not None:
                yield PublishedRow(
                    row=row,
                    model=model,
                    value=value,
                    pairs=PAIRS if row in TASKS else PAIRS * len(TASKS),
                    source=source,
                    date=date,
                    judge="GPT-4.1",
                )


PUBLISHED = (
    *_rows(PAPER, "arXiv 2506.18871v4, tables 4 and 7 to 9", "not stated"),
    *_rows(EMU, "arXiv 2510.26583, table 12", "2025-10"),
)
