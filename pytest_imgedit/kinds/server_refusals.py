"""Refusals by content filters, in the words of each provider."""

import re
from collections.abc import Iterator
from typing import Any

#: Codes, types and reasons that mean a refusal, without case and marks between words. So do texts
#: that begin or end with one: `content_filter: SAFETY`, `InternalError.Algo.DataInspectionFailed`.
CODES = {
    # OpenAI: error codes of chat and images
    "contentfilter": "OpenAI, Azure: content_filter, contentFilter",
    "contentpolicyviolation": "OpenAI, fal, LiteLLM: content_policy_violation",
    "moderationblocked": "OpenAI: moderation_blocked",
    "responsibleaipolicyviolation": "Azure: innererror.code",
    # https://help.aliyun.com/zh/model-studio/error-code
    "datainspectionfailed": "DashScope: data_inspection_failed, DataInspectionFailed",
    "ipinfringementsuspect": "DashScope: IPInfringementSuspect",
    "customroleblocked": "DashScope: CustomRoleBlocked",
    # https://ai.google.dev/api/generate-content: FinishReason, BlockReason
    "safety": "Gemini: SAFETY",
    "prohibitedcontent": "Gemini: PROHIBITED_CONTENT",
    "blocklist": "Gemini: BLOCKLIST",
    "recitation": "Gemini: RECITATION",
    "spii": "Gemini: SPII",
    "imagesafety": "Gemini: IMAGE_SAFETY",
    "imageprohibitedcontent": "Gemini: IMAGE_PROHIBITED_CONTENT",
    "imagerecitation": "Gemini: IMAGE_RECITATION",
    "modelarmor": "Vertex AI: MODEL_ARMOR",
    # https://docs.bigmodel.cn/cn/api/api-code
    "1301": "Zhipu: 1301",
    "sensitive": "Zhipu: finish_reason",
    # https://platform.claude.com/docs: stop_reason; Bedrock: stopReason
    "refusal": "Anthropic: refusal",
    "guardrailintervened": "Bedrock: guardrail_intervened",
    "contentfiltered": "Bedrock: content_filtered",
    # https://platform.minimax.io: base_resp.status_code
    "1026": "MiniMax: 1026, the request",
    "1027": "MiniMax: 1027, the reply",
    # image APIs
    "contentmoderation": "Stability: content_moderation",
    "contentmoderated": "Black Forest Labs: Content Moderated",
    "requestmoderated": "Black Forest Labs: Request Moderated",
    "inputimagesensitivecontentdetected": "Volcengine",
    "inputtextsensitivecontentdetected": "Volcengine",
    "outputimagesensitivecontentdetected": "Volcengine",
    "outputtextsensitivecontentdetected": "Volcengine",
    "sensitivecontentdetected": "Volcengine",
    "inputimageriskdetection": "Volcengine",
    "inputtextriskdetection": "Volcengine",
    "outputimageriskdetection": "Volcengine",
    "outputtextriskdetection": "Volcengine",
    "imageillegaldetected": "Tencent: OperationDenied.ImageIllegalDetected",
    "textillegaldetected": "Tencent: OperationDenied.TextIllegalDetected",
    "nsfwcontentdetected": "image APIs: nsfw_content_detected",
}
#: Parts of sentences by which providers refuse without a code of their own.
SENTENCES = {
    "content management policy": "Azure",
    "safety system": "OpenAI, images",
    "safety_violations": "OpenAI, images",
    "inappropriate content": "DashScope",
    "content filtering policy": "Anthropic",
    "considered high risk": "Moonshot",
    "content exists risk": "DeepSeek",
    "violates usage guidelines": "xAI",
    "input was flagged": "OpenRouter",
    "flagged as sensitive": "Replicate",
    "nsfw content": "Replicate, fal",
    "prohibited use policy": "Gemini",
    "不安全或敏感内容": "Zhipu",
    "data_inspection_failed": "DashScope through a gateway",
    "datainspectionfailed": "DashScope through a gateway",
    "content_policy_violation": "OpenAI through a gateway",
    "contentpolicyviolation": "LiteLLM",
    "moderation_blocked": "OpenAI through a gateway",
    "responsibleaipolicyviolation": "Azure through a gateway",
    "prohibited_content": "Gemini through a gateway",
}
#: Statuses that mean something else, even with a sentence of a refusal.
_OTHER_STATUSES = (401, 404, 407, 408, 409, 413, 415, 429)
#: Fields of an error that hold a code.
_CODES_IN = re.compile(
    r"(?:.*_)?(?:code|type|status|name|reason|block_?reason|finish_?reason)", re.IGNORECASE
)
_BETWEEN_WORDS = re.compile(r"[\s_-]+")
#: How deep a body is searched for texts, and how many items of each list.
_DEPTH = 6
_ITEMS = 100
#: The field in which pydantic repeats what was sent.
_ECHO = "input"


def is_refusal_code(code: object) -> bool:
    """Tell whether a code, a type or a finish reason means that a content filter refused."""
    head = str(code).partition(":")[0].rpartition(".")[2]
    return _BETWEEN_WORDS.sub("", head.strip()).casefold() in CODES


def is_refusal(status: int, body: Any) -> bool:
    """Tell whether an error means that a content filter refused.

    It does by the status 451, by a code of a refusal or a `blockReason` anywhere in its body, and,
    for a status from 400 to 499 that says nothing else, by a part of a sentence.
    """
    if status == 451:  # StepFun: censored
        return True
    texts = list(texts_in(body))
    if any(is_refusal_code(text) for name, text in texts if _CODES_IN.fullmatch(name)):
        return True
    if any(name == "blockReason" for name, _ in texts):  # Gemini: any of them, OTHER too
        return True
    if status in _OTHER_STATUSES or not 400 <= status < 500:
        return False
    words = " ".join(text for _, text in texts).casefold()
    return any(sentence in words for sentence in SENTENCES)


def texts_in(body: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the texts and whole numbers of a body, each after the name of its field, to a depth of
    `_DEPTH` and of the first `_ITEMS` of each list; an item has the name of its list.

    What an error repeats of the request is left out.
    """
    if depth > _DEPTH or name == _ECHO:
        return
    if isinstance(body, dict):
        for field, value in body.items():
            yield from texts_in(value, str(field), depth + 1)
    elif isinstance(body, list):
        for value in body[:_ITEMS]:
            yield from texts_in(value, name, depth + 1)
    elif isinstance(body, str | int) and not isinstance(body, bool):
        yield name, str(body)
