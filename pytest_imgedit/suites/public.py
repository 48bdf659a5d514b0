"""What public benchmarks are, for `imgedit suites` and for messages, and the queries of their
suites.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_imgedit.core import errors, files
from pytest_imgedit.core.images import FileImage
from pytest_imgedit.core.text import did_you_mean, first_of, shorten
from pytest_imgedit.suites import cells
from pytest_imgedit.suites.rows import SuiteRow

#: Digits of a number in a query, at most: it fits into 64 bits.
_MOST_DIGITS = 18


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A public benchmark as the suite `name:DIR`.

    `pairs` is its size, `calls` the number of questions to a judge for one model, and `tokens` a
    rough mean of the tokens of a question and a reply. `origin` says where data come from, `judge`
    is the authors'. `remark` says what is not known of it.
    """

    name: str
    pairs: int
    calls: int
    tokens: tuple[int, int]
    licence: str
    origin: str
    judge: str
    remark: str = ""

    def cost(self, prices: tuple[float, float]) -> float:
        """Return a rough cost of judging one model, by prices of a million tokens in and out."""
        priced_tokens = zip(self.tokens, prices, strict=True)
        cost_of_call = sum(tokens * price for tokens, price in priced_tokens)
        return self.calls * cost_of_call / 1e6


BENCHMARKS = (
    Benchmark(
        name="gedit",
        pairs=606,
        calls=1212,
        tokens=(1400, 120),
        licence="Apache-2.0",
        origin="hub data set stepfun-ai/GEdit-Bench; prompts in GitHub stepfun-ai/Step1X-Edit",
        judge="gpt-4.1, or Qwen2.5-VL-72B-Instruct-AWQ",
    ),
    Benchmark(
        name="gedit-v2",
        pairs=1200,
        calls=7200,
        tokens=(3500, 20),
        licence="none stated",
        origin="hub data set GEditBench-v2/GEditBench-v2; prompts in the authors' "
        "repository GEditBench_v2",
        judge="gpt-4o, and the authors' PVC-Judge for consistency; edits against those of one "
        "other model, in both orders (the authors ask in one)",
    ),
    Benchmark(
        name="genarena",
        pairs=6086,
        calls=12172,
        tokens=(4500, 600),
        licence="see the hub; code Apache-2.0",
        origin="hub data set rhli/genarena; prompts in GitHub ruihanglix/genarena",
        judge="Qwen3-VL-32B-Instruct-FP8, temperature 0; edits against those of one other "
        "model, in both orders",
    ),
    Benchmark(
        name="imgedit",
        pairs=737,
        calls=737,
        tokens=(2200, 60),
        licence="none stated",
        origin="Benchmark.tar of hub data set sysuyy/ImgEdit; or GitHub PKU-YuanGroup/ImgEdit",
        judge="gpt-4o (the script) or gpt-4.1 (the paper)",
    ),
    Benchmark(
        name="kris",
        pairs=1267,
        calls=3801,
        tokens=(2300, 200),
        licence="Apache-2.0",
        origin="hub data set Liang0223/KRIS_Bench; prompts in GitHub mercurystraw/Kris_Bench",
        judge="gpt-4o",
    ),
    Benchmark(
        name="omnicontext",
        pairs=400,
        calls=800,
        tokens=(3000, 120),
        licence="see the hub; code Apache-2.0",
        origin="hub data set OmniGen2/OmniContext; prompts in GitHub VectorSpaceLab/OmniGen2",
        judge="gpt-4.1, asked each question three times (the variant compat: 2,400 questions)",
    ),
    Benchmark(
        name="risebench",
        pairs=360,
        calls=992,
        tokens=(1800, 350),
        licence="none stated",
        origin="hub data set PhoenixZ/RISEBench; prompts in GitHub PhoenixZ810/RISEBench",
        judge="gpt-4.1-2025-04-14, temperature 0",
    ),
    Benchmark(
        name="re-edit",
        pairs=1000,
        calls=1000,
        tokens=(2200, 5),
        licence="see the hub",
        origin="hub data set Yixuan-Ding-ZJU/RE-Edit",
        judge="not stated",
        remark="unverified: read by the names of columns that the seeds use",
    ),
)


def remarks_on(name: str, spec: str, pairs: int) -> Iterator[str]:
    """Yield what a reader of a run's numbers must know of its benchmark: that it is not whole,
    though no sample was asked for, and the benchmark's own remark.
    """
    (benchmark,) = [candidate for candidate in BENCHMARKS if candidate.name == name]
    if pairs != benchmark.pairs and "?" not in spec:
        yield f"{spec}: {pairs} pairs, while the benchmark has {benchmark.pairs}"
    if benchmark.remark:
        yield f"{spec}: {benchmark.remark}"


@dataclass
class Query:
    """The keys of `name:DIR?key=value&key=value`; each is taken once. `asked` are those that may be
    there.
    """

    spec: str
    values: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @classmethod
    def split(cls, spec: str, argument: str) -> tuple[str, "Query"]:
        """Return what stands before the query, and the query; raises `UsageError` for a key without
        a value, and for one that is given twice.
        """
        path, _, text = argument.partition("?")
        values: dict[str, str] = {}
        for part in filter(None, text.split("&")):
            key, equals, value = part.partition("=")
            if not (equals and value) or key in values:
                raise errors.SpecError(f"suite {spec}: {part!r}, expected key=value, each key once")
            values[key] = value
        return path, cls(spec, values)

    def choice(self, key: str, known: Sequence[str]) -> str:
        """Take a key with one of some values, the first by default; raises `UsageError` for another
        value.
        """
        value = self._take(key) or known[0]
        if value not in known:
            raise errors.SpecError(
                f"suite {self.spec}: {key}={value}, expected one of {', '.join(known)}"
                f"{did_you_mean(value, known)}"
            )
        return value

    def number(self, key: str) -> int | None:
        """Take a key with a whole number of at least 0 and at most `_MOST_DIGITS`, `None` by
        default; raises `UsageError` for another value.
        """
        value = self._take(key)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS):
            raise errors.SpecError(f"suite {self.spec}: {key}={value}, expected a whole number")
        return int(value)

    def _take(self, key: str) -> str | None:
        self.asked.append(key)
        return self.values.pop(key, None)

    def end(self) -> None:
        """Raise `UsageError` for a key that was not taken."""
        for key in self.values:
            raise errors.SpecError(
                f"suite {self.spec}: unknown key {key!r}, expected some of "
                f"{', '.join(self.asked)}{did_you_mean(key, self.asked)}"
            )


def keyed_rows(path: Path, expected: str) -> dict[str, SuiteRow]:
    """Return the rows of a JSON file that holds an object of objects, by key.

    Raises `UsageError` for anything else; it says that `expected` was expected in the file.
    """
    document = files.read_object(path, expected)
    for key, values in document.items():
        if not isinstance(values, dict):
            raise errors.UsageError(
                f"{path}: {key!a:.80}: {type(values).__name__}, expected an object"
            )
    return {key: SuiteRow(path=path, values=values, key=key) for key, values in document.items()}


def required(row: SuiteRow, name: str, read: Callable[[object], str | int | None]) -> str:
    """Return what a cell says, by a function of `cells`; raises `UsageError` if it is missing, or
    says nothing of the kind.
    """
    value = row.read(name, read)
    if value is None:
        raise row.error(f"{name!r} is {row.values.get(name)!r:.40}, expected text")
    return str(value)


def text_of(row: SuiteRow, name: str) -> str:
    """Return a text of a row, empty if there is none; raises `UsageError` for anything else."""
    return row.read(name, cells.as_text) or ""


def require_all(spec: str, known: Iterable[str], there: Mapping[str, object]) -> None:
    """Raise `UsageError` for a benchmark that lacks some of its categories."""
    missing = [name for name in known if name not in there]
    if missing:
        raise errors.SpecError(
            f"suite {spec}: no pairs of {first_of(missing)}, expected every category of the "
            "benchmark"
        )


def require_images(spec: str, images: Iterable[FileImage]) -> None:
    """Raise `UsageError` if images are not there: it names the first, and counts the others."""
    missing = [image.path for image in images if not files.is_file(image.path)]
    if missing:
        first, *others = missing
        more = f" and {len(others)} more" if others else ""
        shown = shorten(str(first), 400)
        problem = errors.SpecError(f"suite {spec}: no image {shown}{more}, expected it")
        raise files.error_of_misfit(first, "an image") or problem
