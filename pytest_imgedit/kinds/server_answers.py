"""What a server has answered: a reply to a question, an image, or why there is none."""

import base64
import binascii
from collections.abc import Mapping
from functools import partial
from typing import Any

from PIL import Image

from pytest_imgedit.core import errors, images, requests
from pytest_imgedit.core.text import shorten
from pytest_imgedit.kinds.server_error_bodies import first_of, parse, sentence_of
from pytest_imgedit.kinds.server_refusals import is_refusal_code

#: Finish reasons that mean a whole reply, without case. A server that sends none, or `null`, is
#: believed, too.
DONE = {
    "stop": "OpenAI, vLLM, SGLang, OpenRouter, DashScope, Zhipu; STOP: Gemini",
    "eos": "Together",
    "eos_token": "Text Generation Inference",
    "stop_sequence": "Anthropic, Text Generation Inference",
    "end_turn": "Anthropic, Bedrock",
    "complete": "Cohere: COMPLETE",
    "normal": "Baidu Qianfan",
}
#: Finish reasons of a reply that reached a limit on its length.
CUT = {
    "length": "OpenAI, vLLM, SGLang, OpenRouter",
    "max_tokens": "Anthropic, Bedrock; MAX_TOKENS: Gemini, Cohere",
    "max_output_tokens": "OpenAI, responses",
    "model_length": "Mistral",
    "model_context_window_exceeded": "Anthropic",
}
#: What stands for the reason of a server that sends none.
NO_REASON = "none"
#: Fields of a message that hold a text which is no answer.
THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking")


def read_completion(text: str) -> requests.Answer:
    """Return the answer in the text of a chat completion.

    A reply that reached its limit on tokens is `cut`. Without a whole reply, the error says why.
    """
    body = parse(text)
    if not isinstance(body, dict):
        return requests.Answer(
            error=f"the server answered {sentence_of(text)!r}, expected a chat completion"
        )
    answer = partial(
        requests.Answer,
        tokens_in=_tokens(body, "prompt_tokens"),
        tokens_out=_tokens(body, "completion_tokens"),
        model=_model_of(body),
    )
    choice = first_of(body.get("choices"))
    message = choice.get("message")
    if not isinstance(message, dict):
        return answer(error="an answer without a message, expected a chat completion")
    reason = choice.get("finish_reason")
    reason = NO_REASON if reason is None else shorten(str(reason), 60)
    refusal = message.get("refusal")
    if refusal or is_refusal_code(reason):
        said = refusal if isinstance(refusal, str) else reason.replace("_", " ")
        return answer(error=f"the model refuses to answer: {said}", refused=True)
    is_cut = reason.casefold() in CUT
    if not (is_cut or reason == NO_REASON or reason.casefold() in DONE):
        return answer(error=f"no whole reply (finish_reason {reason!r})")
    content = _content_of(message)
    if not content and not is_cut:
        problem = _why_no_text(message, reason)
        if problem:
            return answer(error=problem)
    return answer((content or "").strip(), cut=is_cut, finish_reason=reason)


def _tokens(body: Mapping[str, Any], field: str) -> int:
    """Return a number of tokens that an answer reports; 0 if it reports none, or a number that no
    answer has: below 0, or from 2**53 on.
    """
    usage = body.get("usage")
    count = usage.get(field) if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count < 2**53 else 0


def _content_of(message: Mapping[str, Any]) -> str | None:
    """Return the text of a message, that of a message in parts joined; `None` if it has none."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        texts = [str(part.get("text", "")) for part in parts if part.get("type") == "text"]
        return "".join(texts) if texts else None
    return content if isinstance(content, str) else None


def _why_no_text(message: Mapping[str, Any], reason: str) -> str:
    """Return why a message has no text; empty for one whose answer is the empty text, with no text
    in another field.
    """
    thought = next((name for name in THOUGHT_FIELDS if message.get(name)), None)
    if thought is None and isinstance(message.get("content"), str):
        return ""
    problem = f"an answer without text (finish_reason {reason!r})"
    if thought is None:
        return problem
    return (
        f"{problem}: its text is in message.{thought}; judge.extra = "
        "{chat_template_kwargs = {enable_thinking = false}} or a larger judge.max_new_tokens may "
        "help"
    )


def _model_of(body: Mapping[str, Any]) -> str:
    """Return the model that a server says has answered, with its fingerprint if it names one."""
    names = [body.get("model"), body.get("system_fingerprint")]
    return shorten(" ".join(name for name in names if isinstance(name, str)), 200)


def read_image(data: bytes) -> Image.Image:
    """Return the image in an answer of images/edits, which may also be the image itself or a data
    URL; raise `OutputError` if there is none.
    """
    # no image begins as JSON, `data:`, a page or blank space do
    if data[:1].strip() not in (b"{", b"[", b"d", b"<", b""):
        return _decoded(data)
    text = data.decode("utf-8", "replace").strip()
    if text.startswith("data:image/"):
        return _of_base64(text)
    body = parse(text)
    if not isinstance(body, dict):
        shown = sentence_of(text[:10_000])
        raise errors.OutputError(f"the server answered {shown!r}, expected an image")
    first = first_of(body.get("data"))
    encoded = first.get("b64_json")
    url = first.get("url")
    if not encoded and isinstance(url, str) and url.startswith("data:"):
        encoded = url
    if not isinstance(encoded, str) or not encoded:
        if not isinstance(url, str):
            raise errors.OutputError("the server sent nothing, expected an image")
        raise errors.OutputError(
            'the server sent a URL, expected an image; editor.response_format="b64_json" may help'
        )
    return _of_base64(encoded)


def is_link(data: bytes) -> bool:
    """Tell whether an answer of images/edits has the address of an image in place of the image."""
    if data[:1] != b"{":
        return False
    body = parse(data.decode("utf-8", "replace"))
    first = first_of(body.get("data")) if isinstance(body, dict) else {}
    url = first.get("url")
    return not first.get("b64_json") and isinstance(url, str) and not url.startswith("data:")


def _of_base64(encoded: str) -> Image.Image:
    """Return an image from base64 or a data URL, where padding may be missing and lines broken;
    raise `OutputError` if it is none.
    """
    if encoded.startswith("data:"):
        encoded = encoded.partition(",")[2]
    encoded = "".join(encoded.split())
    try:
        padding = "=" * (-len(encoded) % 4)
        return _decoded(base64.b64decode(encoded + padding, validate=True))
    except binascii.Error as error:
        raise errors.OutputError(f"the server sent no image: {error}") from None


def _decoded(data: bytes) -> Image.Image:
    """Return the image that these bytes encode; raise `OutputError` if they encode none."""
    try:
        return images.decode(data)
    except errors.ImageError as error:
        raise errors.OutputError(f"the server sent no image: {error}") from None
