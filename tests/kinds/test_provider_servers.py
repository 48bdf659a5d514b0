"""The stubs of servers, asked by the client of OpenAI: they answer their models, and refuse as the
real ones do.
"""

from __future__ import annotations

import base64

import openai
import pytest
from hosted_providers import Azure, DashScope, OpenAI, OpenAIImages
from PIL import Image
from provider_servers import GOOD, VLLM, SGLang, provided

from pytest_imgedit.core.images import encode_png

QWEN = "Qwen/Qwen3-VL-30B-A3B-Instruct"
PNG = encode_png(Image.new("RGB", (16, 16), (51, 51, 51)))
TEXT = [{"role": "user", "content": "grade it"}]
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def client(base_url, key="sk-right"):
    return openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=5)


def ask(url, model, key="sk-right", messages=TEXT, **parameters):
    with client(url, key) as asked:
        return asked.chat.completions.create(model=model, messages=messages, **parameters)


def refused(error, url, model, **parameters):
    """Return the body of the error with which a question ends."""
    with pytest.raises(error) as caught:
        ask(url, model, **parameters)
    return caught.value.response.json()


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        (VLLM(QWEN), QWEN),
        (SGLang(QWEN), QWEN),
        (OpenAI("gpt-5", reasoning=True), "gpt-5"),
        (DashScope("qwen3-vl-plus"), "qwen3-vl-plus"),
    ],
    ids=["vLLM", "SGLang", "OpenAI", "DashScope"],
)
def test_a_served_model_answers_and_the_body_is_kept(provider, model):
    with provided(provider) as host:
        answer = ask(host + provider.base, model, max_completion_tokens=128)
    assert (answer.choices[0].message.content, answer.model) == (GOOD, model)
    body = {"model": model, "messages": TEXT, "max_completion_tokens": 128}
    assert provider.asked == [body]


@pytest.mark.parametrize("provider", [VLLM("a", "b"), SGLang("a", "b"), OpenAI("a", "b")])
def test_models_are_listed(provider):
    with provided(provider) as host, client(host + "/v1") as asked:
        assert [model.id for model in asked.models.list()] == ["a", "b"]


def test_old_vllm_refuses_a_wrong_model_at_the_top_of_the_body():
    with provided(VLLM(QWEN, nested=False)) as host:
        assert refused(openai.NotFoundError, f"{host}/v1", "x") == {
            "object": "error",
            "message": "The model `x` does not exist.",
            "type": "NotFoundError",
            "param": None,
            "code": 404,
        }


def test_new_vllm_refuses_a_wrong_model_below_error():
    with provided(VLLM(QWEN)) as host:
        error = refused(openai.NotFoundError, f"{host}/v1", "x")["error"]
    assert (error["message"], error["code"]) == ("The model `x` does not exist.", 404)


def test_vllm_without_pictures_refuses_them():
    with provided(VLLM(QWEN, text_only=True)) as host:
        messages = [{"role": "user", "content": [PICTURE]}]
        body = refused(openai.BadRequestError, f"{host}/v1", QWEN, messages=messages)
        assert body["error"]["message"] == f"{QWEN} is not a multimodal model"
        assert ask(f"{host}/v1", QWEN).choices[0].message.content == GOOD


def test_vllm_refuses_what_its_context_does_not_hold():
    with provided(VLLM(QWEN, context=100)) as host:
        body = refused(openai.BadRequestError, f"{host}/v1", QWEN, max_tokens=101)
    assert "maximum context length is 100 tokens" in body["error"]["message"]


@pytest.mark.parametrize("provider", [VLLM(QWEN), SGLang(QWEN)], ids=["vLLM", "SGLang"])
def test_a_wrong_path_is_fastapis_404(provider):
    with provided(provider) as host:
        assert refused(openai.NotFoundError, host, QWEN) == {"detail": "Not Found"}
        body = refused(openai.NotFoundError, f"{host}/v1/chat/completions", QWEN)
    assert body == {"detail": "Not Found"}


@pytest.mark.parametrize("kind", [VLLM, SGLang])
def test_a_local_server_with_a_key_refuses_others(kind):
    with provided(kind(QWEN, key="local")) as host:
        body = refused(openai.AuthenticationError, f"{host}/v1", QWEN, key="none")
        assert body == {"error": "Unauthorized"}
        assert ask(f"{host}/v1", QWEN, key="local").choices[0].message.content == GOOD


def test_sglang_answers_a_wrong_model_by_that_name():
    with provided(SGLang(QWEN)) as host:
        assert ask(f"{host}/v1", "x").model == "x"


def test_sglang_refuses_a_chat_without_messages():
    with provided(SGLang(QWEN)) as host:
        body = refused(openai.BadRequestError, f"{host}/v1", QWEN, messages=[])
    assert (body["object"], body["type"], body["code"]) == ("error", "BadRequestError", 400)


def test_openai_refuses_what_reasoning_models_do_not_know():
    with provided(OpenAI("gpt-5", reasoning=True)) as host:
        url = f"{host}/v1"
        limit = refused(openai.BadRequestError, url, "gpt-5", max_tokens=9, temperature=0.0)
        warm = refused(openai.BadRequestError, url, "gpt-5", temperature=0.0)
        ask(url, "gpt-5", temperature=1, max_completion_tokens=9)
    assert (limit["error"]["code"], limit["error"]["param"]) == (
        "unsupported_parameter",
        "max_tokens",
    )
    assert (warm["error"]["code"], warm["error"]["param"]) == ("unsupported_value", "temperature")
    assert "'temperature' does not support 0.0 with this model" in warm["error"]["message"]


def test_openai_takes_the_parameters_of_other_models():
    with provided(OpenAI("gpt-4.1")) as host:
        assert ask(f"{host}/v1", "gpt-4.1", max_tokens=9, temperature=0.0).model == "gpt-4.1"


def test_openai_refuses_a_wrong_model():
    with provided(OpenAI("gpt-5")) as host:
        error = refused(openai.NotFoundError, f"{host}/v1", "gpt-55")["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "model_not_found")


def test_openai_tells_a_missing_key_from_a_wrong_one():
    with provided(OpenAI("gpt-5")) as host:
        wrong = refused(openai.AuthenticationError, f"{host}/v1", "gpt-5", key="none")["error"]
        missing = refused(
            openai.AuthenticationError,
            f"{host}/v1",
            "gpt-5",
            extra_headers={"Authorization": openai.Omit()},
        )["error"]
    assert (wrong["code"], missing["code"]) == ("invalid_api_key", None)
    assert missing["message"].startswith("You didn't provide an API key.")


def test_openai_without_quota_answers_429_for_good():
    with provided(OpenAI("gpt-5", quota=2)) as host:
        for _ in range(2):
            ask(f"{host}/v1", "gpt-5")
        error = refused(openai.RateLimitError, f"{host}/v1", "gpt-5")["error"]
    assert (error["type"], error["code"]) == ("insufficient_quota", "insufficient_quota")


def test_openai_names_a_wrong_path():
    with provided(OpenAI("gpt-5")) as host:
        error = refused(openai.NotFoundError, host, "gpt-5")["error"]
    assert error["message"] == "Invalid URL (POST /chat/completions)"


def edit(url, model="gpt-image-1", **parameters):
    with client(url) as asked:
        return asked.images.edit(
            model=model, image=("source.png", PNG, "image/png"), prompt="snow", **parameters
        )


def test_an_image_comes_in_base64_and_the_form_is_kept():
    provider = OpenAIImages("gpt-image-1", png=PNG)
    with provided(provider) as host:
        answer = edit(f"{host}/v1", size="1024x1024")
    assert base64.b64decode(answer.data[0].b64_json) == PNG
    assert provider.asked == [
        {"image": PNG, "prompt": b"snow", "model": b"gpt-image-1", "size": b"1024x1024"}
    ]


@pytest.mark.parametrize(
    ("parameters", "name"),
    [({"response_format": "b64_json"}, "response_format"), ({"extra_body": {"seed": 1}}, "seed")],
)
def test_gpt_image_refuses_a_parameter_that_it_does_not_know(parameters, name):
    provider = OpenAIImages("gpt-image-1", png=PNG)
    with provided(provider) as host, pytest.raises(openai.BadRequestError) as caught:
        edit(f"{host}/v1", **parameters)
    error = caught.value.response.json()["error"]
    assert (error["code"], error["param"]) == ("unknown_parameter", name)
    assert error["message"] == f"Unknown parameter: '{name}'."


def test_gpt_image_refuses_a_wrong_model():
    provider = OpenAIImages("gpt-image-1", png=PNG)
    with provided(provider) as host, pytest.raises(openai.BadRequestError) as caught:
        edit(f"{host}/v1", model="gpt-image-9")
    error = caught.value.response.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_value", "model")


def test_dashscope_refuses_a_wrong_model_and_a_wrong_key():
    provider = DashScope("qwen3-vl-plus")
    with provided(provider) as host:
        url = host + provider.base
        model = refused(openai.NotFoundError, url, "x")
        key = refused(openai.AuthenticationError, url, "qwen3-vl-plus", key="none")
        with client(url) as asked, pytest.raises(openai.NotFoundError):
            asked.models.list()
    assert model["error"]["code"] == "model_not_found"
    assert key["error"]["code"] == "invalid_api_key"
    assert model["request_id"]


def test_dashscope_refuses_an_account_in_arrears():
    provider = DashScope("qwen3-vl-plus", in_arrears=True)
    with provided(provider) as host:
        body = refused(openai.BadRequestError, host + provider.base, "qwen3-vl-plus")
    assert (body["error"]["code"], body["error"]["type"]) == ("Arrearage", "Arrearage")


def azure(host, key="right"):
    return openai.AzureOpenAI(
        base_url=f"{host}/openai", api_version="2024-10-21", api_key=key, max_retries=0, timeout=5
    )


def refused_by_azure(error, host, deployment, key="right"):
    """Return the body of the error with which a question to a deployment ends."""
    with azure(host, key) as asked, pytest.raises(error) as caught:
        asked.chat.completions.create(model=deployment, messages=TEXT)
    return caught.value.response.json()


def test_azure_answers_a_deployment_by_the_name_of_its_model():
    provider = Azure("judge")
    with provided(provider) as host, azure(host) as asked:
        answer = asked.chat.completions.create(model="judge", messages=TEXT)
        assert [model.id for model in asked.models.list()] == [answer.model]
    assert (answer.choices[0].message.content, answer.model) == (GOOD, "gpt-4.1-2025-04-14")
    assert provider.asked == [{"model": "judge", "messages": TEXT}]


def test_azure_refuses_a_wrong_deployment():
    with provided(Azure("judge")) as host:
        body = refused_by_azure(openai.NotFoundError, host, "other")
    assert body["error"]["code"] == "DeploymentNotFound"


def test_azure_refuses_a_wrong_key():
    with provided(Azure("judge")) as host:
        body = refused_by_azure(openai.AuthenticationError, host, "judge", key="wrong")
    assert body["error"]["code"] == "401"


def test_azure_wants_a_version_in_the_address():
    with provided(Azure("judge")) as host:
        body = refused(openai.NotFoundError, f"{host}/openai/deployments/judge", "judge")
    assert body == {"error": {"code": "404", "message": "Resource not found"}}
