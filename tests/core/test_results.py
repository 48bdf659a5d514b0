"""Results: what is written is read back, what is none is refused with its place, and the schema
says what there is.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from documents import a_run
from hypothesis import given
from hypothesis import strategies as st

from pytest_imgedit import Results, read_results
from pytest_imgedit.core.errors import UsageError


def written(folder, document):
    (folder / "results.json").write_text(json.dumps(document))
    return folder / "results.json"


def test_what_is_written_is_read_back(tmp_path):
    results = a_run()
    assert read_results(written(tmp_path, results.model_dump(mode="json"))) == results


@pytest.mark.parametrize("text", ["Ctrl\x1b[2J", "line\nNaN", "NaN,", "Größe \u202e 笑"])
def test_the_text_of_results_is_read_back_and_controls_no_terminal(tmp_path, text):
    results = a_run()
    item = results.items[0].model_copy(update={"instruction": text})
    results = results.model_copy(update={"items": (item, *results.items[1:])})
    path = tmp_path / "results.json"
    path.write_text(results.to_json(), "utf-8")
    assert read_results(path) == results
    assert not {"\x1b", "\u202e"} & set(results.to_json())


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["score", "aspects", "seconds"])
def test_a_number_that_is_not_finite_is_not_written(number, place):
    results = a_run()
    item = results.items[0]
    changes = {"score": {"score": number}, "aspects": {"aspects": {"l1": number}}}
    if place == "seconds":
        seed = item.seeds[0]
        changed = replace(seed, edit=replace(seed.edit, seconds=number))
        changes["seconds"] = {"seeds": (changed,)}
    item = item.model_copy(update=changes[place])
    with pytest.raises(ValueError, match="NaN or infinite"):
        results.model_copy(update={"items": (item,)}).to_json()


@pytest.mark.parametrize(
    ("place", "value", "line"),
    [
        (("run", "status"), "done", "run.status: Input should be 'complete' or 'incomplete'"),
        (("items", 0, "score"), 11, "items.0.score: Input should be less than or equal to 10"),
        (
            ("items", 0, "seeds", 0, "edit", "blob"),
            None,
            "items.0.seeds.0.edit.blob: Input should be a valid string",
        ),
        (("items", 0, "colour"), "red", "items.0.colour: Extra inputs are not permitted"),
        (
            ("categories", "physics", "n"),
            "many",
            "categories.physics.n: Input should be a valid integer",
        ),
        (("gates", 0, "state"), "MAYBE", "gates.0.state: Input should be 'PASS', 'FAIL',"),
        (("timing", "edit_s"), None, "timing.edit_s: Input should be a valid number"),
    ],
)
def test_a_document_that_is_wrong_is_refused_with_its_place(tmp_path, place, value, line):
    document = a_run().model_dump(mode="json")
    part = document
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    with pytest.raises(UsageError) as caught:
        read_results(written(tmp_path, document))
    assert str(caught.value).startswith(
        f"{tmp_path / 'results.json'}: not a whole results document: {line}"
    )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "section", ["run", "suite", "editor", "judge", "timing", "items", "gates", "overall"]
)
def test_a_section_that_is_missing_is_named(tmp_path, section):
    document = a_run().model_dump(mode="json")
    del document[section]
    with pytest.raises(
        UsageError, match=rf"not a whole results document: {section}: Field required"
    ):
        read_results(written(tmp_path, document))


@pytest.mark.parametrize("schema", ["imgedit.results/2", "imgedit.baseline/4", None])
def test_other_documents_are_refused_by_their_schema(tmp_path, schema):
    document = {**a_run().model_dump(mode="json"), "schema": schema}
    with pytest.raises(UsageError, match=r"expected 'imgedit\.results/3'"):
        read_results(written(tmp_path, document))


@given(value=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
@pytest.mark.everyday
def test_whatever_stands_in_a_section_it_is_read_or_refused_in_one_line(tmp_path_factory, value):
    folder = tmp_path_factory.mktemp("r")
    refused = ""
    try:
        read_results(written(folder, {**a_run().model_dump(mode="json"), "reuse": value}))
    except UsageError as error:
        refused = str(error)
    assert "\n" not in refused
    assert refused.startswith(str(folder))


def test_every_field_that_the_schema_requires_is_written():
    schema = Results.model_json_schema(mode="serialization")
    assert set(schema["required"]) <= set(a_run().model_dump(mode="json"))
