"""`imgedit suites`: the public benchmarks, with what a run of one model needs."""

from dataclasses import asdict

from pytest_imgedit.core.strict_json import JsonObject
from pytest_imgedit.suites.public import BENCHMARKS, Benchmark


def list_suites(price_in: float | None, price_out: float | None) -> tuple[JsonObject, str, int]:
    """List each benchmark with its size, licence, origin, judge, questions and cost.

    Prices are for a million tokens in and out; without any the cost is not known.
    """
    prices = (price_in or 0.0, price_out or 0.0)
    rows = []
    blocks = []
    for benchmark in BENCHMARKS:
        row = asdict(benchmark)
        row["cost"] = benchmark.cost(prices) if any(prices) else None
        rows.append(row)
        blocks.append(_block(benchmark, prices))
    blocks.append(
        "seeds:FILE takes your own file by the seeds' protocol; docs/protocols.md has a page each"
    )
    return {"suites": rows}, "\n\n".join(blocks), 0


def _block(benchmark: Benchmark, prices: tuple[float, float]) -> str:
    """Return the lines of a benchmark, with its cost if there are prices."""
    tokens_in, tokens_out = [tokens * benchmark.calls / 1e6 for tokens in benchmark.tokens]
    questions = f"{benchmark.calls:,} questions a model"
    if any(prices):
        questions += f", about {benchmark.cost(prices):.2f}"
    lines = [
        f"{benchmark.name}:DIR  {benchmark.pairs:,} pairs, licence: {benchmark.licence}",
        f"  data: {benchmark.origin}",
        f"  authors' judge: {benchmark.judge}",
        f"  {questions} ({tokens_in:.1f} million tokens in, {tokens_out:.2f} out)",
    ]
    if benchmark.remark:
        lines.append(f"  {benchmark.remark}")
    return "\n".join(lines)
