"""What a judge, an editor and a metric make of what servers and gateways are documented to answer."""

from __future__ import annotations

import base64
import json

import pytest
from asking import Asked
from PIL import Image
from run_world import World, judged, pairs_of
from scripted_server import scripted_server

from pytest_imgedit.core.errors import FailsForGood, OutputError, Refused, UsageError
from pytest_imgedit.core.images import encode_png
from pytest_imgedit.core.requests import EditRequest, Question
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.kinds.server import Server, ServerParameters, parse_endpoint
from pytest_imgedit.kinds.server_answers import CUT, DONE, read_completion
from pytest_imgedit.kinds.server_error_bodies import failure_in
from pytest_imgedit.kinds.server_refusals import CODES, SENTENCES, is_refusal

GOOD = "instruction: 8\npreservation: 7\nrealism: 9"
GREY = Image.new("RGB", (16, 12), (51, 51, 51))
QUESTION = Question("a", "physics", "lift it", {"source": GREY, "edited": GREY}, "", ())
#: The retries of every client here: a request that is retried for good is seen three times.
RETRIES = 2


@pytest.fixture(scope="module")
def scripted():
    with scripted_server() as server:
        yield server


@pytest.fixture
def server(scripted):
    scripted.answers.clear()
    scripted.seen.clear()
    return scripted


def worker(role, spec, **params):
    model = make_model(role, spec, {"retries": RETRIES, "timeout": 5.0, **params})
    return Asked(model)


@pytest.fixture
def judge(server):
    model = f"openai:{server.url}/v1#m"
    return worker("judge", model, concurrency=1, token_limit="max_tokens")


@pytest.fixture
def editor(server):
    return worker("editor", f"openai-images:{server.url}/v1#m")


@pytest.fixture
def metric(server):
    return worker("metric", f"http-score:{server.url}/score", concurrency=1)


def completion(content=GOOD, finish="stop", choice=None, **message):
    return {
        "id": "x",
        "object": "chat.completion",
        "model": "m-2026",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": content, **message},
                **(choice or {}),
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }


def streamed(*deltas, finish="stop", tail=()):
    """A chat completion in server-sent events, as it comes from servers that always stream."""
    chunks = [{"model": "m-2026", "choices": [{"delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    chunks += tail
    lines = [": OPENROUTER PROCESSING", *(f"data: {json.dumps(chunk)}" for chunk in chunks)]
    return "\n\n".join([*lines, "data: [DONE]"])


def error(message="no luck", **fields):
    return {"error": {"message": message, **fields}}


ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"
PAGE = "<!doctype html><html><head><title>{}</title></head><body><p>nginx</p></body></html>"
AZURE_REFUSAL = error(
    "The response was filtered due to the prompt triggering Azure OpenAI's content management "
    "policy.",
    param="prompt",
    code="content_filter",
    status=400,
    innererror={
        "code": "ResponsibleAIPolicyViolation",
        "content_filter_result": {"hate": {"filtered": True, "severity": "high"}},
    },
)
OPENROUTER_MODERATION = {
    "error": {
        "code": 403,
        "message": 'm requires moderation on OpenAI. Your input was flagged for "violence".',
        "metadata": {"reasons": ["violence"], "flagged_input": "…", "provider_name": "OpenAI"},
    }
}
CITED = {"raw": '{"error":{"code":"data_inspection_failed"}}', "provider_name": "Alibaba"}
#: What a server answers each time, what that is, how often it is asked, and words of the reason.
SITUATIONS = {
    "vLLM": (completion(reasoning_content=None, tool_calls=[]), ANSWERED, 1, ""),
    "vLLM, other model": (
        (404, error("The model `x` does not exist.", type="NotFoundError", code=404)),
        *(FAILED, 1, "404: The model `x` does not exist."),
    ),
    "vLLM, too long": (
        (400, {"object": "error", "message": "maximum context length", "code": 400}),
        *(FAILED, 1, "400: maximum context length"),
    ),
    "vLLM, aborted": (completion("realism: 1", "abort"), FAILED, 1, "finish_reason 'abort'"),
    "vLLM, thoughts alone": (
        completion(None, reasoning_content=GOOD),
        *(FAILED, 1, "its text is in message.reasoning_content; judge.extra = {chat_template"),
    ),
    "vLLM 0.20, thoughts alone": (
        completion("", reasoning=GOOD),
        *(FAILED, 1, "its text is in message.reasoning;"),
    ),
    "SGLang, out of memory": (
        {"object": "error", "message": "out of memory", "type": "InternalServerError"},
        *(FAILED, 3, "answered 200, tried 3 times, with an error: out of memory"),
    ),
    "SGLang, tools": (completion(None, "tool_calls"), FAILED, 1, "finish_reason 'tool_calls'"),
    "OpenAI, refusal": (completion(None, refusal="I cannot"), REFUSED, 1, "answer: I cannot"),
    "OpenAI, parameter": (
        (
            400,
            error(
                "Unsupported parameter: 'max_tokens'",
                type="invalid_request_error",
                param="max_tokens",
                code="unsupported_parameter",
            ),
        ),
        *(FAILED, 1, "400: Unsupported parameter: 'max_tokens'"),
    ),
    "OpenAI, policy": (
        (400, error(type="invalid_request_error", code="content_policy_violation")),
        *(REFUSED, 1, "400: no luck"),
    ),
    "OpenAI, no quota": (
        (429, error("You exceeded your current quota", code="insufficient_quota")),
        *(FAILED, 1, "the server answered 429: You exceeded your current quota"),
    ),
    "OpenAI, no quota in 200": (
        error("You exceeded your current quota", code=429, type="insufficient_quota"),
        *(FAILED, 1, "the server answered 200, with an error: You exceeded your current quota"),
    ),
    "OpenAI, overloaded": (
        (503, error("The engine is currently overloaded", type="server_error")),
        *(FAILED, 3, "503, tried 3 times: The engine"),
    ),
    "DashScope, refusal": (
        (400, error(type="data_inspection_failed", code="data_inspection_failed")),
        *(REFUSED, 1, "400: no luck"),
    ),
    "DashScope, own form": (
        (400, {"code": "DataInspectionFailed", "message": "no", "request_id": "1"}),
        *(REFUSED, 1, "400: no"),
    ),
    "DashScope, inner error": (
        (400, error("<400> no", code="InternalError.Algo.DataInspectionFailed")),
        *(REFUSED, 1, "400: <400> no"),
    ),
    "DashScope, inner error in 200": (
        error("<400> no", code="InternalError.Algo.DataInspectionFailed"),
        *(REFUSED, 1, "an error: <400> no"),
    ),
    "DashScope, media": (
        (400, error(code="InvalidParameter.DataInspection")),
        *(FAILED, 1, "no luck"),
    ),
    "DashScope, throttled in 200": (
        {"code": "Throttling.RateQuota", "message": "Requests rate limit exceeded"},
        *(FAILED, 3, "without choices: Requests rate limit exceeded"),
    ),
    "Azure, prompt": ((400, AZURE_REFUSAL), REFUSED, 1, "content management policy"),
    "Azure, reply": (completion("instruc", "content_filter"), REFUSED, 1, "content filter"),
    "Azure, deployment": (
        (404, error("The API deployment does not exist", code="DeploymentNotFound")),
        *(FAILED, 1, "404: The API deployment"),
    ),
    "OpenRouter, lost": (
        completion("realism: 1", "error", {"error": {"code": 502, "message": "lost"}}),
        *(FAILED, 3, "with an error: lost"),
    ),
    "OpenRouter, lost without an error": (
        completion("realism: 1", "error"),
        *(FAILED, 3, "with finish_reason 'error'"),
    ),
    "OpenRouter, rate limit in 200": (
        error("Provider returned error", code=429, metadata={"raw": "slow down"}),
        *(FAILED, 3, "with an error: Provider returned error: slow down"),
    ),
    "OpenRouter, credits in 200": (error("credits", code=402), FAILED, 1, "an error: credits"),
    "OpenRouter, nothing": ({**completion(), "choices": []}, FAILED, 3, "without choices"),
    "OpenRouter, null": ({**completion(), "choices": None}, FAILED, 3, "without choices"),
    "OpenRouter, moderation": ((403, OPENROUTER_MODERATION), REFUSED, 1, "was flagged"),
    "OpenRouter, moderation in 200": (OPENROUTER_MODERATION, REFUSED, 1, "was flagged"),
    "OpenRouter, citing DashScope": (
        (400, error("Provider returned error", code=400, metadata=CITED)),
        *(REFUSED, 1, "Provider returned error"),
    ),
    "error of a sentence": ({"error": "Rate limit reached"}, FAILED, 3, "Rate limit reached"),
    "error without a status": ({"error": "no luck"}, FAILED, 1, "with an error: no luck"),
    "error of a word": (error(type="overloaded_error"), FAILED, 3, "no luck"),
    "Gemini, prompt": (
        {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}},
        *(REFUSED, 1, "without choices"),
    ),
    "Gemini, prompt, other": (
        {"candidates": [], "promptFeedback": {"blockReason": "OTHER"}},
        *(REFUSED, 1, "without choices"),
    ),
    "Gemini, language": (completion("instruc", "LANGUAGE"), FAILED, 1, "'LANGUAGE'"),
    "Gemini, reply": (
        completion(None, "content_filter: PROHIBITED_CONTENT"),
        *(REFUSED, 1, "PROHIBITED CONTENT"),
    ),
    "Gemini, own words": (completion("instruc", "SAFETY"), REFUSED, 1, "SAFETY"),
    "Zhipu, reply": (completion("", "sensitive"), REFUSED, 1, "sensitive"),
    "Zhipu, prompt": ((400, error("系统检测到", code="1301")), REFUSED, 1, "系统检测到"),
    "Zhipu, rate limit in 200": (error(code="1302"), FAILED, 3, "no luck"),
    "Zhipu, no balance": ((429, error("余额不足", code="1113")), FAILED, 1, "429: 余额不足"),
    "MiniMax, no balance": (
        (500, error("insufficient balance (1008)", type="api_error")),
        *(FAILED, 1, "500: insufficient balance"),
    ),
    "DashScope, too many tokens a minute": (
        (429, error("Allocated quota exceeded. See: …#token-limit", code="insufficient_quota")),
        *(FAILED, 3, "429, tried 3 times: Allocated quota"),
    ),
    "Zhipu, lost": (completion("realism: 1", "network_error"), FAILED, 3, "'network_error'"),
    "DeepSeek, lost": (
        completion("realism: 1", "insufficient_system_resource"),
        *(FAILED, 3, "insufficient_system_resource"),
    ),
    "DeepSeek, risk": ((400, error("Content Exists Risk")), REFUSED, 1, "Risk"),
    "MiniMax": (
        {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}},
        *(FAILED, 3, "rate limit"),
    ),
    "Anthropic, refusal": (completion("I", "refusal"), REFUSED, 1, "refusal"),
    "Anthropic, pause": (completion("I", "pause_turn"), FAILED, 1, "'pause_turn'"),
    "Mistral, parts": (
        completion([{"type": "thinking", "thinking": []}, {"type": "text", "text": GOOD}]),
        *(ANSWERED, 1, ""),
    ),
    "streamed": (streamed({"role": "assistant"}, {"content": GOOD}), ANSWERED, 1, ""),
    "streamed, lost": (
        streamed({"content": "realism: 1"}, tail=[error("lost", code=502)]),
        *(FAILED, 3, "lost"),
    ),
    "streamed, without an end": (
        streamed({"content": "realism: 1"}, finish=None),
        *(FAILED, 1, "a stream without one"),
    ),
    "a page": (PAGE.format("Sign in"), FAILED, 1, "answered 'Sign in', expected a chat"),
    "a page with a status": (PAGE.format("502 Bad Gateway"), FAILED, 3, "502 Bad Gateway"),
    "a page of 413": (
        (413, PAGE.format("413 Request Entity Too Large")),
        *(FAILED, 1, "the server answered 413: 413 Request Entity Too Large"),
    ),
    "a page of 503": ((503, "<h1>Maintenance</h1>"), FAILED, 3, "times: Maintenance"),
    "a page with the words of a status": (PAGE.format("Bad Gateway"), FAILED, 3, "Bad Gateway"),
    "a text": ("ok, thank you", FAILED, 1, "'ok, thank you', expected a chat"),
    "a text with the words of a status": (
        "upstream connect error or disconnect/reset before headers",
        *(FAILED, 3, "tried 3 times, with a text: upstream connect error"),
    ),
    "a long text": ("upstream " * 60, FAILED, 1, "expected a chat completion"),
    "Cloudflare": (
        {"success": False, "errors": [{"code": 429, "message": "too many"}]},
        *(FAILED, 3, "with an error: too many"),
    ),
    "Gemini, errors in a list": (
        (400, [error("no model", status="INVALID_ARGUMENT")]),
        *(FAILED, 1, "400: no model"),
    ),
    "Gemini, errors in a list in 200": (
        [error("slow down", status="RESOURCE_EXHAUSTED")],
        *(FAILED, 3, "with an error: slow down"),
    ),
    "streamed, lost in its choice": (
        streamed({"content": "x"}, tail=[{"choices": [{"error": {"code": 502}}]}]),
        *(FAILED, 3, "with an error"),
    ),
    "a number": (7, FAILED, 1, "'7'"),
    "no message": ({"choices": [{"text": GOOD}]}, FAILED, 1, "without a message"),
    "choices of texts": ({"choices": ["x"]}, FAILED, 1, "without a message"),
    "StepFun": ((451, error("censored")), REFUSED, 1, "censored"),
}  # fmt: skip


@pytest.mark.parametrize("name", SITUATIONS)
def test_judge_ends_a_situation_in_the_right_state(server, judge, name):
    answer, state, tries, words = SITUATIONS[name]
    server.answers.extend([answer] * tries)
    (given,) = judge.answer([QUESTION])
    found = FAILED if given.error else ANSWERED
    assert (REFUSED if given.refused else found) == state, given
    assert words in (given.error or "")
    assert "\n" not in (given.error or "")
    assert len(server.posted) == tries
    assert given.reply == (GOOD if state == ANSWERED else "")


@pytest.mark.parametrize(
    "lost",
    ["OpenRouter, rate limit in 200", "OpenRouter, lost", "a page of 503", "Zhipu, lost"],
)
def test_judge_takes_the_answer_that_comes_after_an_error(server, judge, lost):
    server.answers.extend([SITUATIONS[lost][0], completion()])
    assert judge.answer([QUESTION])[0].reply == GOOD
    assert len(server.posted) == 2


@pytest.mark.parametrize("reason", [*DONE, "STOP", "END_TURN", "COMPLETE", None])
def test_finish_reason_of_a_whole_reply_is_kept(reason):
    answer = read_completion(json.dumps(completion(finish=reason)))
    assert (answer.reply, answer.error, answer.cut) == (GOOD, None, False)
    assert answer.finish_reason == ("none" if reason is None else reason)


def test_finish_reason_may_lack():
    body = completion()
    del body["choices"][0]["finish_reason"]
    assert read_completion(json.dumps(body)).reply == GOOD


@pytest.mark.parametrize("reason", [*CUT, "MAX_TOKENS"])
@pytest.mark.parametrize("content", ["realism: 1", "", None])
def test_reply_that_reached_a_limit_is_cut(reason, content):
    answer = read_completion(json.dumps(completion(content, reason)))
    assert (answer.cut, answer.error, answer.reply) == (True, None, content or "")


@pytest.mark.parametrize(
    "reason", ["error", "abort", "function_call", "null", "", "OTHER", "unknown", 7, True, ["stop"]]
)
def test_any_other_finish_reason_is_no_reply(reason):
    answer = read_completion(json.dumps(completion(finish=reason)))
    assert answer.error == f"no whole reply (finish_reason {str(reason)!r})"
    assert not answer.reply


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("field", ["code", "type", "inner", "detail"])
def test_each_code_of_a_refusal_is_found_where_providers_put_it(code, field):
    body = {
        "code": {"error": {"code": code.upper()}},
        "type": {"error": {"type": code, "code": None}},
        "inner": {"error": {"code": "BadRequest", "innererror": {"code": code}}},
        "detail": {"detail": [{"loc": ["body"], "type": code, "msg": "no"}]},
    }[field]
    assert is_refusal(400, body)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_each_sentence_of_a_refusal_counts_in_a_refused_request_alone(sentence):
    body = error(f"Sorry: {sentence.upper()}.", code="x")
    assert is_refusal(400, body)
    assert is_refusal(403, body)
    assert not is_refusal(500, body)
    assert not is_refusal(429, body)


@pytest.mark.parametrize(
    "body",
    [
        error("Unsupported value: 'temperature'", code="unsupported_value"),
        error("The image data you provided is not valid", code="invalid_image_url"),
        error("Unknown parameter: 'content_filter'", code="unknown_parameter"),
        error("safety_identifier is too long", code="string_above_max_length"),
        {"error": {"code": "BadRequest", "content_filter_result": {"hate": {"filtered": False}}}},
        error("At most 1 image(s) may be provided in one request.", code=400),
        "no JSON",
        None,
    ],
)
def test_unknown_errors_are_no_refusals(body):
    assert not is_refusal(400, body)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (error(code="429"), 429),
        (error(code=529), 529),
        (error(status="RESOURCE_EXHAUSTED"), 429),
        (error(code="rate_limit_exceeded", type="requests"), 429),
        (error("Rate limit reached", type="requests", code=None), 429),
        (error(code="insufficient_quota"), 402),
        (error(type="server_error"), 500),
        (error(type="invalid_request_error"), 400),
        (error("upstream connect error"), 502),
        (error(error={"code": 504}), 504),
        (error(code=1301), 400),
        ({"error": True}, 400),
        ({"error": ["x"]}, 400),
    ],
)
def test_error_in_200_has_the_status_that_it_names(body, status):
    failure = failure_in(json.dumps(body), "choices")
    assert failure is not None
    assert failure.status == status


PNG = encode_png(GREY)
BASE64 = base64.b64encode(PNG).decode()
LINES = "\n".join(BASE64[start : start + 60] for start in range(0, len(BASE64), 60))


@pytest.mark.parametrize(
    "answer",
    [
        {"created": 0, "data": [{"b64_json": BASE64}]},
        {"data": [{"b64_json": f"data:image/png;base64,{BASE64}"}]},
        {"data": [{"url": f"data:image/png;base64,{BASE64}"}]},
        {"data": [{"b64_json": LINES}]},
        {"data": [{"b64_json": BASE64.rstrip("=")}]},
        f"data:image/png;base64,{BASE64}",
        PNG,
    ],
    ids=["base64", "data URL", "data URL as URL", "lines", "no padding", "text", "body"],
)
def test_editor_reads_an_image_in_every_form(server, editor, answer):
    server.answers.append(answer)
    request = EditRequest("a", "physics", "lift it", GREY, 1)
    assert editor.edit(request).tobytes() == GREY.tobytes()


@pytest.mark.parametrize(
    ("answer", "kind", "tries", "words"),
    [
        ({"data": []}, RuntimeError, 3, "answered 200, tried 3 times, without data"),
        ({"created": 0}, RuntimeError, 3, "without data"),
        (error("slow down", code=429), RuntimeError, 3, "with an error: slow down"),
        ((429, error("slow down")), RuntimeError, 3, "429, tried 3 times: slow down"),
        ((429, error("no", code="insufficient_quota")), FailsForGood, 1, "answered 429: no"),
        (error("no", code=429, type="insufficient_quota"), FailsForGood, 1, "answered 200, with"),
        (error("no", code="moderation_blocked"), Refused, 1, "an error: no"),
        ((400, error("no", code="moderation_blocked")), Refused, 1, "400: no"),
        ((400, error("rejected by our safety system.")), Refused, 1, "safety system"),
        ((400, error("no", type="image_generation_user_error")), RuntimeError, 1, "400: no"),
        ({"detail": [{"type": "content_policy_violation", "msg": "no"}]}, Refused, 1, "no"),
        ({"data": [{"url": "https://h/x.png"}]}, OutputError, 1, "a URL"),
        ({"data": [{"b64_json": "/w=="}]}, OutputError, 1, "no image"),
        ({"data": [{"b64_json": "%%%"}]}, OutputError, 1, "no image"),
        ({"data": [{"b64_json": None}]}, OutputError, 1, "sent nothing"),
        ({"data": ["x"]}, OutputError, 1, "sent nothing"),
        (PAGE.format("Sign in"), OutputError, 1, "'Sign in', expected an image"),
        ("Not here", OutputError, 1, "no image"),
        (PNG[:40], OutputError, 1, "no image"),
    ],
)
def test_editor_ends_a_situation_in_the_right_state(server, editor, answer, kind, tries, words):
    server.answers.extend([answer] * tries)
    with pytest.raises((RuntimeError, OutputError, Refused)) as caught:
        editor.edit(EditRequest("a", "physics", "lift it", GREY, 1))
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert len(server.posted) == tries


@pytest.mark.parametrize(
    ("answer", "state", "tries", "words"),
    [
        ({"score": 5.0}, ANSWERED, 1, ""),
        ({"score": 5.0, "error": None}, ANSWERED, 1, ""),
        ({"score": 5.0, "error": "boom"}, FAILED, 1, "with an error: boom"),
        (error("busy", code=503), FAILED, 3, "with an error: busy"),
        ({"error": "timed out"}, FAILED, 3, "timed out"),
        (error(code="content_filter"), REFUSED, 1, "no luck"),
        ({"detail": "boom"}, FAILED, 1, "detail"),
        (PAGE.format("504 Gateway Time-out"), FAILED, 3, "504 Gateway Time-out"),
        ((422, {"detail": [{"msg": "Field required"}]}), FAILED, 1, "Field required"),
    ],
)
def test_metric_ends_a_situation_in_the_right_state(server, metric, answer, state, tries, words):
    server.answers.extend([answer] * tries)
    (given,) = metric.answer([QUESTION])
    found = FAILED if given.error else ANSWERED
    assert (REFUSED if given.refused else found) == state, given
    assert words in (given.error or "")
    assert len(server.posted) == tries
    assert given.score == (5.0 if state == ANSWERED else None)


def test_classic_address_of_azure_has_its_version_and_its_header(server, monkeypatch):
    monkeypatch.setenv("AZURE_KEY", "secret-of-azure")
    address = f"{server.url}/openai/deployments/d?api-version=2024-10-21"
    server.greeting = (404, error("Resource not found", code="404"))
    judge = worker("judge", f"openai:{address}#gpt-4o", api_key_env="AZURE_KEY")
    server.answers.append(completion())
    assert judge.answer([QUESTION])[0].reply == GOOD
    path, headers, _ = server.posted[0]
    assert path == "/openai/deployments/d/chat/completions?api-version=2024-10-21"
    assert headers["api-key"] == "secret-of-azure"
    editor = worker("editor", f"openai-images:{address}#gpt-image-1", api_key_env="AZURE_KEY")
    server.answers.append({"data": [{"b64_json": BASE64}]})
    editor.edit(EditRequest("a", "physics", "lift it", GREY, 1))
    path, headers, _ = server.posted[1]
    assert path == "/openai/deployments/d/images/edits?api-version=2024-10-21"
    assert headers["api-key"] == "secret-of-azure"


@pytest.mark.parametrize(
    "query", ["api-version=", "api-version=1&key=x", "key=x&api-version=1", "api-version=a b", "x"]
)
def test_no_other_query_is_taken(query):
    with pytest.raises(UsageError, match="a query"):
        parse_endpoint("openai", f"https://h/openai?{query}#m")


def told_of(server):
    """What is said of a request to a server that fails."""
    try:
        server.connect().post("/chat/completions", body={}, cast_to=str)
    except Exception as failed:
        return server.describe(failed)
    return ""


def through(monkeypatch, proxy):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "")


def test_proxy_that_does_not_answer_is_named(monkeypatch):
    through(monkeypatch, "http://me:secret@127.0.0.1:9")
    told = told_of(Server("http://127.0.0.1:8/v1", "m", ServerParameters(retries=0)))
    assert told.startswith(
        "the server cannot be reached through the proxy 127.0.0.1:9 (NO_PROXY=127.0.0.1 goes past "
    )
    assert "secret" not in told


def test_proxy_is_named_in_the_page_that_it_sends(server, monkeypatch):
    through(monkeypatch, server.url)
    server.answers.append((403, PAGE.format("Blocked by policy")))
    told = told_of(Server("http://models.example/v1", "m", ServerParameters(retries=0)))
    assert f"through the proxy {server.url}" in told
    assert told.endswith(": Blocked by policy")


@pytest.mark.parametrize("name", [name for name in SITUATIONS if SITUATIONS[name][1] != ANSWERED])
@pytest.mark.everyday_for(
    "vLLM, other model",
    "OpenAI, refusal",
    "DashScope, inner error in 200",
    "OpenRouter, lost without an error",
    "OpenRouter, citing DashScope",
    "Gemini, reply",
    "DeepSeek, risk",
    "a page with a status",
    "Cloudflare",
    "StepFun",
)
def test_nothing_of_a_failed_answer_is_in_the_store(tmp_path, server, judge, name):
    answer, state, tries, _ = SITUATIONS[name]

    def ask(message):
        server.answers.extend([answer] * tries * len(message["questions"]))
        answers = judge.answer([QUESTION] * len(message["questions"]))
        return {"op": "judged", "batch_size": 1, "answers": [vars(each) for each in answers]}

    world = World(tmp_path, pairs=pairs_of("physics"))
    world.judge = ask
    (work,) = world.run().plan.works
    assert work.verdict is None
    assert work.error.kind == ("refused" if state == REFUSED else "judge")
    assert not world.store.verdicts.records
    world.judge = lambda message: judged(message, finish_reason="stop")
    (work,) = world.run().plan.works
    assert work.verdict.score == 7
    (record,) = world.store.verdicts.records.values()
    assert record.finish_reason == "stop"


@pytest.mark.parametrize("digits", [101, 5_000, 100_000])
@pytest.mark.parametrize("form", ["{}", "data: {}\n\ndata: [DONE]\n"])
def test_a_count_of_tokens_with_thousands_of_digits_costs_no_reply(digits, form):
    choice = '{"message": {"content": "9"}, "finish_reason": "stop"}'
    usage = f'{{"prompt_tokens": {"9" * digits}, "completion_tokens": 3}}'
    answer = read_completion(form.format(f'{{"choices": [{choice}], "usage": {usage}}}'))
    assert (answer.reply, answer.error) == ("9", None)
