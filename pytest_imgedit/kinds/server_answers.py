"""What a server has answered: an answer to a question, or why there is none."""

from functools import partial
from typing import Any

from pytest_imgedit.core import requests, sanitize


def read_completion(completion: Any) -> requests.Answer:
    """Make an answer of a chat completion; raises whatever reading one that lacks its fields
    raises.
    """
    usage = getattr(completion, "usage", None)
    counts = (getattr(usage, "prompt_tokens", 0), getattr(usage, "completion_tokens", 0))
    tokens_in, tokens_out = (  # a server that claims more than 2**53 tokens is not believed
        count if type(count) is int and 0 <= count < 2**53 else 0 for count in counts
    )
    answer = partial(
        requests.Answer, tokens_in=tokens_in, tokens_out=tokens_out, model=_model_of(completion)
    )
    choice = completion.choices[0]
    content, cut = choice.message.content, choice.finish_reason == "length"
    refusal = getattr(choice.message, "refusal", None)
    if refusal or choice.finish_reason == "content_filter":
        reason = f"the model refuses to answer: {refusal or 'content filter'}"
        return answer(error=reason, refused=True)
    if not (isinstance(content, str) or (cut and content is None)):  # it may have thought only
        return answer(error=f"an answer without text (finish_reason {choice.finish_reason!r})")
    return answer((content or "").strip(), cut=cut)


def _model_of(completion: Any) -> str:
    """Return the model that a server says has answered, with its fingerprint if it names one."""
    names = (getattr(completion, name, None) for name in ("model", "system_fingerprint"))
    return sanitize.shorten(" ".join(name for name in names if isinstance(name, str)), 200)
