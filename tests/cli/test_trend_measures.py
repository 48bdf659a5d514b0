"""`imgedit trend` and `imgedit plan` by other measures than the score, and other groups."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from documents import a_run, an_item

from pytest_imgedit.cli.plan import plan
from pytest_imgedit.cli.trend import trend
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.core.results import Measure
from pytest_imgedit.report.read import as_baseline
from pytest_imgedit.stats.decision import summarize_items
from pytest_imgedit.store.baselines import make_baseline, write_baseline

MEASURES = {
    "score": Measure(scale=(0.0, 10.0)),
    "lpips": Measure(scale=(0.0, 1.0), lower_is_better=True, is_main=True),
    "psnr": Measure(),
}
PAIRS = 16


def a_night(night, lpips):
    """A run of which the score rises a little each night."""
    items = [
        an_item(
            f"p{n}",
            score=5.0 + 0.01 * night + 0.1 * n,
            aspects={
                "lpips": lpips + 0.01 * n + 0.001 * (n * night % 5),
                "psnr": 30.0 + n - 10 * round(lpips - 0.21, 1),
            },
            source=f"ab/{hashlib.sha256(bytes([n])).hexdigest()}.png",
            blob=hashlib.sha256(bytes([night, n])).hexdigest(),
            difficulty="hard" if n % 2 else "easy",
        )
        for n in range(PAIRS)
    ]
    _, _, measured = summarize_items(items, MEASURES)
    return a_run(items=items, measures=measured, run={"id": f"r{night}"})


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """Baselines of four nights; the last two are worse by `lpips`, where lower is better, and by
    `psnr`.
    """
    folder = tmp_path_factory.mktemp("nights")
    runs = [a_night(night, lpips) for night, lpips in enumerate((0.21, 0.2, 0.4, 0.41))]
    return [
        str(write_baseline(folder, make_baseline(run, f"night{night}")))
        for night, run in enumerate(runs)
    ]


@pytest.fixture
def latest(tmp_path):
    """A results.json of one night."""
    path = tmp_path / "results.json"
    document = json.loads(a_night(0, 0.2).model_dump_json())
    document["run"]["options"] |= {
        "workers": {"gpus_per_worker": 1},
        "judge": {"gpus_per_replica": 1},
    }
    path.write_text(json.dumps(document))
    return str(path)


def test_a_rise_is_worse_where_lower_is_better(nights, tmp_path):
    page = tmp_path / "trend.html"
    document, text, code = trend(nights, None, measure=[], alpha=0.05, out=tmp_path, html=page)
    assert (code, document["worse"]) == (1, {"lpips@overall": 2})
    assert text.splitlines()[-2] == "FAIL: lpips@overall rose at night2"
    assert "lpips (0 to 1, lower is better)" in text
    assert "psnr" not in text  # no main measure
    assert document["limit"] == 2 / 0.05  # one chance of a false alarm for both means
    assert page.read_text().count("<svg") == 4


def test_named_measures_take_the_place_of_the_usual_ones(nights, tmp_path):
    document, _, code = trend(nights, None, measure=["score"], alpha=0.05, out=tmp_path, html=None)
    assert (code, document["fields"]) == (0, ["overall"])


def test_a_measure_without_ends_is_judged_too(nights, tmp_path):
    page = tmp_path / "trend.html"
    document, text, code = trend(
        nights, None, measure=["psnr"], alpha=0.05, out=tmp_path, html=page
    )
    assert (code, document["worse"]) == (1, {"psnr@overall": 2})
    assert text.splitlines()[-2] == "FAIL: psnr@overall fell at night2"
    first = document["runs"][0]["measures"]["psnr"]
    assert first["mean"] == pytest.approx(37.5)
    low, high = first["ci95"]
    assert 37.5 - low == pytest.approx(high - 37.5)  # Student's
    assert page.read_text().count("<svg") == 2


def test_a_single_edit_of_an_earlier_run_is_no_further_evidence(nights, tmp_path):
    earlier, later = (as_baseline(Path(night)) for night in nights[:2])
    changed, *others = later.items
    seed = replace(changed.seeds[0], edit=earlier.items[0].seeds[0].edit)
    items = (replace(changed, seeds=(seed,)), *others)
    path = write_baseline(tmp_path, later.model_copy(update={"items": items}))
    document, _, _ = trend(
        [nights[0], str(path)], None, measure=[], alpha=0.05, out=tmp_path, html=None
    )
    assert document["notes"][1] == (
        "The edits of 1 item are those of an earlier run, and no further evidence"
    )


def test_a_measure_that_the_newest_run_lacks_is_refused(nights, tmp_path):
    with pytest.raises(UsageError, match=r"--measure=lpip: .*expected one of: score, lpips, psnr"):
        trend(nights, None, measure=["lpip"], alpha=0.05, out=tmp_path, html=None)


@pytest.mark.parametrize(
    ("field", "pairs", "side"),
    [
        ("lpips@overall", PAIRS, "over"),
        ("difficulty=hard", PAIRS // 2, "under"),
        ("lpips@difficulty=easy", PAIRS // 2, "over"),
        ("psnr@physics", PAIRS, "under"),
    ],
)
def test_a_plan_takes_the_fields_of_gates(latest, tmp_path, field, pairs, side):
    document, text, _ = plan(
        latest, None, gate=[field], spread=None, power=None, alpha=0.05, out=tmp_path
    )
    (row,) = document["rows"]
    assert (row["gate"], row["pairs_now"]) == (f"fail_under {field}", pairs)
    assert f"{pairs} pairs can detect a mean about" in text
    assert f"{side} the limit" in text


def test_a_plan_against_a_baseline_is_on_the_scale_of_its_measure(latest, nights, tmp_path):
    document, text, _ = plan(
        latest, nights[3], gate=["lpips@overall"], spread=None, power=None, alpha=0.05, out=tmp_path
    )
    (row,) = document["rows"]
    assert row["gate"] == "max_drop lpips@overall"
    assert 0 < row["mde"] < 0.005  # differences spread by 0.0015
    assert f"can detect a rise of about {row['mde']:.3f} over the limit" in text


def test_a_plan_refuses_a_measure_that_the_run_lacks(latest, tmp_path):
    with pytest.raises(UsageError, match="unknown measure 'ssim' in 'ssim@overall'"):
        plan(latest, None, gate=["ssim@overall"], spread=None, power=None, alpha=0.05, out=tmp_path)


def test_the_document_is_json(nights, tmp_path):
    document, _, _ = trend(
        nights, None, measure=["score", "psnr"], alpha=0.05, out=tmp_path, html=None
    )
    assert json.loads(json.dumps(document))["measures"]["psnr"]["scale"] == [None, None]
