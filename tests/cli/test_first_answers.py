"""`imgedit doctor` and `imgedit qualify` ask served models as a run does before its first edit."""

from __future__ import annotations

import pytest
from api_server import api_server, error, graded

from pytest_imgedit.cli.doctor import examine, qualify
from pytest_imgedit.core.errors import UsageError

MISSING = error(404, "The model `m` does not exist.", code="model_not_found")


@pytest.fixture
def server():
    with api_server() as server:
        server.models = ("m2",)
        yield server


def config(folder, server, more=""):
    path = folder / "imgedit.toml"
    judge = f'[judge]\nspec = "openai:{server.url}#m"\nretries = 0\n{more}'
    path.write_text(f'[suite]\nspec = "scenes:n=1"\n[editor]\nspec = "oracle"\n{judge}')
    return path


def test_doctor_asks_a_judge_about_the_suite(server, tmp_path):
    document, _, code = examine(config(tmp_path, server))
    assert (document["problems"], code) == ([], 0)
    (body,) = server.asked
    assert len(body["messages"][-1]["content"]) >= 3


def test_doctor_says_which_models_there_are(server, tmp_path):
    server.answer = lambda fields: MISSING
    _, text, code = examine(config(tmp_path, server))
    problem = f"problem: judge: {server.url} has no model 'm' (404: The model `m` does not exist.)"
    assert f"{problem}, expected one of 'm2'" in text
    assert code == 1


def test_doctor_names_the_section_of_a_further_model(server, tmp_path):
    def answer(fields):
        return MISSING if fields["model"] == "other" else graded(fields)

    server.answer = answer
    more = f'[judges.strict]\nspec = "openai:{server.url}#other"\n'
    _, text, _ = examine(config(tmp_path, server, more))
    assert f"problem: judges.strict: {server.url} has no model 'other'" in text


def test_failure_that_may_pass_is_a_problem_to_the_doctor(server, tmp_path):
    server.answer = lambda fields: error(503, "overloaded")
    document, _, code = examine(config(tmp_path, server))
    reason = "judge: the first request failed: the server answered 503: overloaded"
    assert (document["problems"], code) == ([reason], 1)


def test_doctor_asks_an_editor_for_a_small_edit(server, tmp_path):
    server.answer = lambda fields: error(401, "Incorrect API key provided.")
    path = tmp_path / "imgedit.toml"
    path.write_text(f'[editor]\nspec = "openai-images:{server.url}#m"\n')
    _, text, code = examine(path)
    assert "problem: editor: " in text
    assert "wants a key (401), expected one in OPENAI_API_KEY: Incorrect API key" in text
    assert code == 1


def test_doctor_asks_nothing_of_a_model_that_is_not_to_be_asked(server, tmp_path):
    examine(config(tmp_path, server, "ask_first = false\n"))
    assert server.asked == []


def test_judge_that_is_qualified_is_asked_first(server, tmp_path, capsys):
    server.answer = lambda fields: MISSING
    with pytest.raises(UsageError, match=r"has no model 'm' .* expected one of 'm2'"):
        qualify(
            None,
            None,
            None,
            None,
            config=config(tmp_path, server),
            assigned=(),
            out=tmp_path / "store",
        )
    assert len(server.asked) == 1
