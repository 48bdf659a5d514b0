"""Refusals by content filters, in the words of each provider."""


def is_refusal(error: Exception) -> bool:
    """Tell whether a request failed since a content filter refused it."""
    body = getattr(error, "body", None)
    code = str(body.get("code") if isinstance(body, dict) else "")
    return any(name in code for name in ("content_filter", "content_policy", "moderation"))
