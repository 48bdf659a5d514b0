"""The first request to a server: its answer, or the one line that says why there will be none."""

from __future__ import annotations

import base64
import io

import pytest
from api_server import NOT_FOUND, PAGE, api_server, completion, error, graded
from PIL import Image

from pytest_imgedit.core.errors import SetupError, UsageError
from pytest_imgedit.core.requests import EditRequest, Preparation, Question
from pytest_imgedit.kinds.first_answer import ask_first, ask_together
from pytest_imgedit.kinds.registry import make_model


def png(size: tuple[int, int] = (16, 16)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, "grey").save(buffer, "PNG")
    return buffer.getvalue()


EDIT = EditRequest("p", "physics", "Draw a small red circle.", png(), 1)
QUESTION = Question(
    pair_id="p",
    category="physics",
    instruction="Draw",
    images={"source": png((64, 48)), "edited": png((64, 48))},
    parts=(("text", "What changed?"), ("image", "source"), ("image", "edited")),
)


def edited(fields):
    return 200, {"data": [{"b64_json": base64.b64encode(png()).decode()}]}


def always(answer):
    return lambda fields: answer


def ask_judge(url, section="judge", question=QUESTION, **params):
    model = make_model("judge", f"openai:{url}#m", {"retries": 1, **params})
    return ask_first(model, question, section)


def ask_editor(url, **params):
    model = make_model("editor", f"openai-images:{url}#m", {"retries": 1, **params})
    return ask_first(model, EDIT, "editor")


def ask_metric(url):
    model = make_model("metric", f"http-score:{url}", {"retries": 1})
    return ask_first(model, QUESTION, "metrics.mine")


def line_of(ask, *arguments, **params):
    with pytest.raises(UsageError) as caught:
        ask(*arguments, **params)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_an_answer_is_what_the_server_sent():
    with api_server() as server:
        answer = ask_judge(server.url)
    assert '"prompt_tokens": 100' in answer.reply
    assert answer.doubt == ""
    assert len(server.asked) == 1


def test_an_edit_is_what_the_server_sent():
    with api_server(edited) as server:
        answer = ask_editor(server.url)
    assert b"b64_json" in answer.reply
    assert server.asked[0]["prompt"] == b"Draw a small red circle."


MISSING = error(404, "The model `m` does not exist.", code="model_not_found")


@pytest.mark.parametrize("ask", [ask_judge, ask_editor])
def test_wrong_model_names_those_of_the_server(ask):
    with api_server(always(MISSING)) as server:
        server.models = ("other", "m2", *[f"text-{number}" for number in range(20)])
        line = line_of(ask, server.url)
    assert line.startswith(
        f"{server.url} has no model 'm' (404: The model `m` does not exist.), expected one of 'm2', "
    )
    assert line.endswith(" and 14 more")


@pytest.mark.parametrize("models", [None, ()])
def test_wrong_model_of_a_server_without_a_list(models):
    with api_server(always(MISSING)) as server:
        server.models = models
        line = line_of(ask_judge, server.url)
    assert line.endswith(f"which it has is not known, since {server.url}/models lists none")


def test_model_that_is_not_listed_but_answers_is_right():
    with api_server() as server:
        server.models = ("another",)
        assert ask_judge(server.url).reply


def test_listed_model_that_takes_no_chat():
    with api_server(always(NOT_FOUND)) as server:
        line = line_of(ask_judge, server.url)
    assert line.startswith(
        f"{server.url} lists 'm', but answered POST {server.url}/chat/completions"
    )


@pytest.mark.parametrize("elsewhere", [NOT_FOUND, (405, b"Method Not Allowed"), (200, PAGE)])
@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1/chat/completions",
        "/v1/models",
        "/v1/v1",
        "/v1/images/edits",
        "/v1/chat/completions/",
    ],
)
def test_wrong_address_says_the_right_one(path, elsewhere):
    with api_server() as server:
        server.elsewhere = elsewhere
        line = line_of(ask_judge, server.host + path)
    assert "is not the base URL of an API" in line
    assert line.endswith(f"expected openai:{server.host}/v1#m")


@pytest.mark.parametrize("base", ["/api/v1", "/openai/v1", "/tenant/a/v1"])
def test_base_below_another_folder_is_found(base):
    wrong = "/tenant/a" if base.startswith("/tenant") else ""
    with api_server(base=base) as server:
        line = line_of(ask_editor, server.host + wrong)
    assert line.endswith(f"expected openai-images:{server.url}#m")


def test_right_address_lists_its_models():
    with api_server() as server:
        server.models = ("other",)
        line = line_of(ask_judge, server.host)
    assert line.endswith(f"expected openai:{server.url}#MODEL, with a model of 'other'")


def test_address_that_wants_a_key_may_be_the_right_one():
    with api_server() as server:
        server.key_wanted = True
        line = line_of(ask_judge, server.host)
    assert line.endswith(f"expected openai:{server.url}#m")


def test_server_that_wants_a_key_for_its_list_is_not_asked():
    with api_server() as server:
        server.key_wanted = True
        with pytest.raises(SetupError, match=r"wants a key \(401\)"):
            ask_judge(server.url)
    assert server.asked == []


def test_wrong_address_without_an_api_nearby():
    with api_server(base="/hidden/base") as server:
        line = line_of(ask_judge, server.host)
    assert "was answered with 404: Not Found" in line
    assert line.endswith("expected a base URL such as http://localhost:8000/v1")


def test_page_at_an_address_that_lists_models_is_no_wrong_address():
    with api_server(always((200, PAGE))) as server:
        assert ask_judge(server.url).reply == PAGE.decode()


UNSUPPORTED = "Unsupported {}: '{}' is not supported with this model."


def picky(*names):
    """Answers requests without these fields, and refuses one of the others at a time."""

    def answer(fields):
        for name in names:
            if name in fields:
                text = UNSUPPORTED.format("parameter", name)
                return error(400, text, param=name, code="unsupported_parameter")
        return edited(fields) if "prompt" in fields else graded(fields)

    return answer


def test_all_refused_parameters_of_a_judge_are_in_one_line():
    with api_server(picky("top_k", "max_tokens", "temperature", "min_p")) as server:
        line = line_of(
            ask_judge, server.url, token_limit="max_tokens", extra={"top_k": 1, "min_p": 0, "n": 1}
        )
    assert line == (
        f"'m' at {server.url} does not take the request (400: Unsupported parameter: 'top_k' is not "
        'supported with this model.); add to [judge]: token_limit = "max_completion_tokens", '
        'temperature = "default" (--imgedit-set=judge.token_limit=max_completion_tokens '
        "--imgedit-set=judge.temperature=default); remove extra.top_k and extra.min_p from [judge]"
    )
    assert len(server.asked) == 5


def test_changes_that_the_line_names_are_enough():
    with api_server(picky("max_tokens", "temperature")) as server:
        line_of(ask_judge, server.url)
        changed = {"token_limit": "max_completion_tokens", "temperature": "default"}
        assert ask_judge(server.url, **changed).reply


def test_field_for_the_length_that_the_client_finds_needs_no_change():
    with api_server(picky("max_tokens")) as server:
        assert ask_judge(server.url).reply
        line = line_of(ask_judge, server.url, token_limit="max_tokens")
    assert 'token_limit = "max_completion_tokens"' in line


def test_questions_at_a_time_all_find_the_field_for_the_length():
    with api_server(picky("max_tokens")) as server:
        model = make_model("judge", f"openai:{server.url}#m", {})
        assert len(ask_together(model, [QUESTION] * 5)) == 5


def test_field_for_the_length_is_named_beside_other_changes():
    with api_server(picky("max_tokens", "temperature")) as server:
        line = line_of(ask_judge, server.url)
    with api_server(picky("temperature")) as server:
        other = line_of(ask_judge, server.url)
    assert 'token_limit = "max_completion_tokens", temperature = "default"' in line
    assert "token_limit" not in other


@pytest.mark.parametrize("refuses", [("logprobs", "top_logprobs"), ("top_logprobs",), ()])
def test_server_without_logprobs_cannot_give_expected_grades(refuses):
    with api_server(picky(*refuses)) as server:
        line = line_of(ask_judge, server.url, scoring="expected")
        assert ask_judge(server.url).reply
    assert line.endswith(
        '; add to [judge]: scoring = "greedy" (--imgedit-set=judge.scoring=greedy)'
    )


def test_section_of_a_further_judge_is_named():
    with api_server(picky("temperature")) as server:
        line = line_of(ask_judge, server.url, "judges.strict")
        dotted = line_of(ask_judge, server.url, "judges.gpt-4.1")
    setting = "--imgedit-set=judges.strict.temperature=default"
    assert line.endswith(f'; add to [judges.strict]: temperature = "default" ({setting})')
    assert dotted.endswith('; add to [judges."gpt-4.1"]: temperature = "default"')


def test_refused_parameters_of_an_editor_are_in_one_line():
    params = {"size": "512x512", "send_seed": True, "response_format": "b64_json"}
    with api_server(picky("response_format", "size", "seed")) as server:
        line = line_of(ask_editor, server.url, **params)
    assert line.endswith(
        "; add to [editor]: send_seed = false (--imgedit-set=editor.send_seed=false); remove "
        "response_format and size from [editor]"
    )


def test_editor_that_sends_addresses_is_told_what_to_ask_for():
    def answer(fields):
        if "response_format" in fields:
            return edited(fields)
        return 200, {"data": [{"url": "http://127.0.0.1/image.png"}]}

    with api_server(answer) as server:
        line = line_of(ask_editor, server.url)
    setting = "--imgedit-set=editor.response_format=b64_json"
    assert line.endswith(f'; add to [editor]: response_format = "b64_json" ({setting})')


def test_length_that_no_field_may_have():
    def answer(fields):
        name = next(name for name in fields if name.startswith("max_"))
        return error(400, UNSUPPORTED.format("value", name), param=name)

    with api_server(answer) as server:
        line = line_of(ask_judge, server.url)
    assert line.endswith("; expected a smaller judge.max_new_tokens")


def test_parameters_of_which_the_config_knows_none():
    def answer(fields):
        return error(400, UNSUPPORTED.format("parameter", "temperature"), param="temperature")

    with api_server(answer) as server:
        line = line_of(ask_judge, server.url)
        assert len(server.asked) == 2
    assert "add to [judge]" in line


@pytest.mark.parametrize("ask", [ask_judge, ask_editor, ask_metric])
def test_key_that_is_refused(ask, monkeypatch):
    refusal = error(401, "Incorrect API key provided.", code="invalid_api_key")
    for name in ("OPENAI_API_KEY", "HTTP_SCORE_API_KEY"):
        monkeypatch.setenv(name, "sk-of-a-test")
    with api_server(always(refusal)) as server:
        url = f"{server.url}/score" if ask is ask_metric else server.url
        line = line_of(ask, url)
    assert line.startswith(f"{url} refuses the key in ")
    assert line.endswith("(401): Incorrect API key provided.")


@pytest.mark.parametrize("ask", [ask_judge, ask_editor])
def test_key_that_is_missing(ask, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with api_server(always(error(401, "You didn't provide an API key."))) as server:
        line = line_of(ask, server.url)
    assert "wants a key (401), expected one in OPENAI_API_KEY" in line


@pytest.mark.parametrize("ask", [ask_judge, ask_editor])
def test_no_quota(ask):
    message = "You exceeded your current quota, please check your plan and billing details."
    with api_server(always(error(429, message, code="insufficient_quota"))) as server:
        line = line_of(ask, server.url)
    assert line == f"{server.url} has no quota left for this key (429: {message})"


def test_model_that_takes_no_pictures():
    message = "At most 0 image(s) may be provided in one request."
    with api_server(always(error(400, message))) as server:
        line = line_of(ask_judge, server.url)
    assert line == (
        f"'m' at {server.url} does not take the pictures (400: {message}), expected a model that "
        "does"
    )


TOO_LONG = error(
    400,
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
    code="context_length_exceeded",
)


def test_context_that_is_too_short():
    with api_server(always(TOO_LONG)) as server:
        line = line_of(ask_judge, server.url)
        sent = Question(**{**vars(QUESTION), "preparation": Preparation(codec="png")})
        prepared = line_of(ask_judge, server.url, question=sent)
    size = "2 pictures of 64 x 48 pixels and 13 characters of text"
    assert line.startswith(f"'m' at {server.url} has too short a context for {size} (400: This ")
    larger = "; expected a larger context of the server (--max-model-len of vLLM), "
    assert line.endswith(
        f"{larger}a smaller judge.max_new_tokens (128), or a smaller judge.max_pixels (1048576)"
    )
    assert prepared.endswith(
        f"{larger}a smaller judge.max_new_tokens (128), or a protocol that shows smaller pictures"
    )


def test_address_of_scores_that_is_wrong():
    with api_server() as server:
        line = line_of(ask_metric, f"{server.url}/scores")
    assert line == (
        f"{server.url}/scores is no address of a server of scores: POST was answered with 404: Not "
        'Found, expected {"score": NUMBER}'
    )


@pytest.mark.parametrize("ask", [ask_judge, ask_editor])
@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_failures_that_may_pass_are_doubts(ask, status):
    with api_server(always(error(status, "not today"))) as server:
        answer = ask(server.url)
    assert answer.reply is None
    assert answer.doubt.startswith(f"the server answered {status}")
    assert len(server.asked) == (1 if status == 400 else 2)


def test_refusal_by_a_content_filter_is_no_problem():
    refusal = error(400, "no", code="content_policy_violation")
    with api_server(always(refusal)) as server:
        answer = ask_editor(server.url)
    assert (answer.reply, answer.doubt) == (None, "")


def test_unreadable_reply_is_no_problem():
    with api_server(always((200, completion("I cannot say")))) as server:
        assert ask_judge(server.url).doubt == ""


def test_deployment_of_azure_that_is_not_there():
    missing = error(
        404, "The API deployment for this resource does not exist.", code="DeploymentNotFound"
    )
    with api_server(always(missing), base="/openai") as server:
        server.elsewhere = missing
        line = line_of(ask_judge, f"{server.url}?api-version=2024-10-21")
    assert "has no deployment 'm' (404: The API deployment" in line
