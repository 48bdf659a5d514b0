"""Which failures of servers and gateways are final, by what they are documented and reported to
answer.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_imgedit.kinds.server_final import FinalFailure, final_failure, is_out_of_quota

FILE = Path(__file__).with_name("server_failures.jsonl")
#: What servers and gateways answer to a request that fails, one a line; `cause` is `None` for a
#: failure that is not final.
ROWS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
MODEL = "Qwen/Qwen2.5-VL-7B"
#: The fields of a question and of an edit together.
SENT = (
    *("model", "messages", "temperature", "max_tokens", "top_p", "top_k", "seed", "user"),
    *("prompt", "image", "size", "quality", "response_format", "reasoning_effort"),
    *("frequency_penalty", "chat_template_kwargs"),
)


def rows_of(*causes):
    return [
        pytest.param(row, id=f"{row['cause']}: {row['server']}")
        for row in ROWS
        if row["cause"] in causes
    ]


def found_in(row):
    return final_failure(row["status"], row["body"], SENT, MODEL)


def error(message, **fields):
    return {"error": {"message": message, **fields}}


@pytest.mark.parametrize("row", rows_of("key", "quota", "model", "address", "images", "context"))
def test_a_final_failure_has_its_cause(row):
    assert found_in(row) == FinalFailure(row["cause"])
    assert is_out_of_quota(row["status"], row["body"]) == (row["cause"] == "quota")


@pytest.mark.parametrize("row", rows_of("parameters"))
def test_refused_fields_are_named_in_the_order_in_which_they_were_sent(row):
    fields = sorted(row["fields"], key=SENT.index)
    assert found_in(row) == FinalFailure("parameters", tuple(fields))
    assert not is_out_of_quota(row["status"], row["body"])


@pytest.mark.parametrize("row", rows_of(None))
def test_any_other_failure_is_not_final(row):
    assert found_in(row) is None
    assert not is_out_of_quota(row["status"], row["body"])


@pytest.mark.parametrize("status", [408, 409, 425, 429])
def test_failure_that_may_pass_is_not_final_whatever_it_says(status):
    bodies = [row["body"] for row in ROWS if row["cause"] != "quota"]
    assert not any(final_failure(status, body, SENT, MODEL) for body in bodies)
    assert not any(is_out_of_quota(status, body) for body in bodies)


@pytest.mark.parametrize("model", ["m", "seed", "gpt-image-1", "a.b+c(", ""])
def test_name_of_the_model_says_nothing_of_the_cause(model):
    body = error(f"The model `{model}` does not exist or you do not have access to it.")
    assert final_failure(404, body, SENT, model) == FinalFailure("model")
    body = error(f"Unsupported parameter: 'seed' is not supported with {model}.", param="seed")
    assert final_failure(400, body, SENT, model) == FinalFailure("parameters", ("seed",))


def test_only_fields_that_were_sent_are_named():
    body = error("does not support parameters: ['seed', 'top_k']")
    assert final_failure(400, body, ["top_k"], MODEL) == FinalFailure("parameters", ("top_k",))
    assert final_failure(400, body, ["temperature"], MODEL) is None


def test_body_may_be_the_text_of_its_json():
    body = error("The model `x` does not exist", code="model_not_found")
    assert final_failure(404, json.dumps(body), SENT, MODEL) == FinalFailure("model")


@pytest.mark.parametrize("body", [None, 7, [], {}, [[]], {"error": None}, {"error": ["x"]}, "{"])
def test_odd_bodies_name_nothing(body):
    assert final_failure(400, body, SENT, MODEL) is None
    assert final_failure(404, body, (), "") == FinalFailure("address")
