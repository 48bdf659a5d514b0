"""The codes and words by which servers say why every request like one would fail.

Codes are compared without case and without marks between words, sentences without case. `§` stands
for the name of the model that was asked for.
"""

import re
from collections.abc import Sequence


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    """Return one pattern that finds what any of several finds."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


#: Stands for the name of the model.
MODEL = "§"

#: The account has no money, no free requests left or a bill to pay.
QUOTA_CODES = _any_of(
    [
        r"insufficient(?:\w*quota|\w*balance|credit|fund)",  # OpenAI, new-api, MiniMax
        r"billinghardlimit|billingnotactive|billingerror",  # OpenAI, Anthropic
        r"spend(?:ing)?limit",  # OpenAI
        r"arrearage|freetieronly|freeexceeded",  # DashScope
        r"overdue|setlimitexceeded",  # Volcengine: AccountOverdueError, a limit of one's own
        r"exceededcurrentquota",  # Moonshot
        r"creditlimit",  # Together
        r"creditserror|outofcredit|paymentrequired",  # OpenCode and others
        r"budgetexceeded|exceededbudget",  # LiteLLM
        r"notenoughbalance|balancenotenough",  # Novita
        r"consumetokenquotafailed",  # new-api
        r"^(?:1113|1309)$",  # Zhipu: no balance, no plan
        r"^1008$",  # MiniMax
        r"^(?:30001|30011)$",  # SiliconFlow
    ]
)
QUOTA_WORDS = _any_of(
    [
        r"(?:insufficient|not enough|no|low) (?:\w+ ){0,2}(?:balance|credits?|funds)\b",
        r"n't have (?:any |enough )?(?:credits|balance)",
        r"balance(?: is| has been)? (?:too low|insufficient|not enough|exhausted|empty)",
        r"(?:exhausted|used up|depleted) (?:\w+ ){0,2}(?:credits|balance|funds)\b",
        r"requires (?:more|paid) (?:credits|balance)",
        r"out of credits|credit limit exceeded|exceeded .{0,30}included credits",
        r"credits? (?:are |is |has been )?(?:depleted|exhausted|used up)",
        r"used all (?:\w+ ){0,3}credits|(?:purchase|buy) (?:more )?credits",
        r"spend(?:ing)? (?:limit|cap)\b.{0,60}(?:reached|exceeded)",
        r"(?:reach\w*|exceed\w*) .{0,40}(?:spend(?:ing)? (?:limit|cap)|api usage limits)\b",
        r"billing (?:hard )?limit|check your billing details|payment required|please recharge",
        r"in arrears|overdue (?:balance|bill|pay)|bill is overdue",
        r"budget has been exceeded|key limit exceeded|call volume quota|set inference limit",
        r"free (?:allocated |tier )?quota (?:\w+ ){0,3}(?:exceeded|exhausted|used up)",
        r"free tier of .{0,30}exhausted",
        r"account is (?:not active|in debt)|good standing",
        r"余额不足|欠费|额度不足|额度已经?(?:用尽|耗尽|用完)|请充值",
    ]
)
#: Words with which a code of `QUOTA_CODES` means that requests come too fast, as from DashScope.
THROTTLE = _any_of(
    [
        r"rate[ _-]?limit|throttl|concurren|\b[tr]p[smd]\b",
        r"per (?:minute|second|hour|day)|#token-limit",
        r"(?<!free )allocated quota exceeded",
    ]
)

#: The failure may pass, whatever its status.
PASSING_CODES = re.compile(
    r"ratelimit|toomanyrequests|throttl|overload|resourceexhausted|timeout|serverbusy"
)
PASSING_WORDS = re.compile(r"rate[ _-]?limit|too many requests|overloaded|temporarily|timed out")

#: The key is wrong or lacks.
KEY_CODES = re.compile(r"apikey|authentication|unauthorized|unauthenticated|invalidtoken")
_KEY = r"(?:(?:api|secret|access)[ _-]?)+key"
KEY_WORDS = _any_of(
    [
        rf"{_KEY}.{{0,20}}(?:invalid|not valid|not found|missing|required)",
        rf"{_KEY}.{{0,20}}(?:expired|disabled|revoked)",
        rf"(?:invalid|incorrect|missing|no|wrong|expired|provide an?|carry the) {_KEY}",
        r"carry the api secret key|login fail",  # MiniMax
        r"invalid (?:(?:\w+ )?credentials|(?:auth\w*|access|bearer) token)",
        r"missing (?:bearer|authorization)",
    ]
)

#: The prompt, or the prompt and the reply, have more tokens than the server takes.
CONTEXT_CODES = _any_of(
    [
        r"context(?:length|window|size|toolong)",
        r"^1261$",  # Zhipu
    ]
)
_LIMIT = r"(?:max_(?:completion_|new_|output_)?tokens|maxoutputtokens)"
CONTEXT_WORDS = _any_of(
    [
        r"context[ _-]?(?:length|size|window|limit)",
        r"(?:prompt|inputs?|messages?|conversation|text|request)\b.{0,60}too (?:long|many tokens)",
        r"too many (?:input |prompt )?tokens|(?:input|prompt|requested) token count",
        r"reduce (?:the |your )(?:length|size|message|input|prompt|number of)",
        r"(?:input|prompt|sequence) length.{0,60}(?:should be|exceed|maximum|longer|greater)",
        r"(?:prompt|input)s?\b.{0,20}exceeds? .{0,20}(?:length|limit)",
        r"(?:prompt|sequence|input)\b.{0,40}longer than",
        r"(?:maximum|max)[ _-](?:\w+[ _-])?(?:input|prompt|sequence|seq|model)[ _-]len(?:gth)?\b",
        r"`?inputs`? (?:tokens \+|must have less than)",  # Text Generation Inference
        r"exceed\w* .{0,40}(?:token limit|(?:number|amount|limit) of (?:\w+ )?tokens)",
        r"number of tokens exceed|maximum allowed number of (?:\w+ )?tokens|tokens? limit exceeded",
        r"total tokens .{0,40}exceed|at most \d+ (?:completion|output) tokens",
        rf"{_LIMIT}\W.{{0,60}}(?:too large|at most|exceed|is limited)",
        rf"{_LIMIT}\W.{{0,60}}(?:above (?:the )?maximum|<=|less than or equal|cannot be greater)",
        rf"{_LIMIT}.{{0,20}}at least 1, got -|range of {_LIMIT}",
        r"prompt_tokens|超长|过长|超过.{0,12}(?:长度|上限)",
    ]
)

_PICTURE = r"(?:image|picture)s?"
_SIGHT = r"(?:image|picture|vision|visual|multi-?modal)s?"
_PART = (
    r"(?:[ _-](?:inputs?|urls?|content|understanding|data|parts?|messages?|attachments?"
    r"|modality|modalities))"
)
_LACKS = r"(?:not|n't|cannot|can't|no|without|lacks?|unable to)"
_TAKE = r"(?:support|accept|allow|understand|see|capab)\w*"
#: The model takes no images, or fewer than were sent.
NO_IMAGES_WORDS = _any_of(
    [
        rf"{_LACKS} (?:\w+ )?{_TAKE} (?:[\w,/-]+ ){{0,3}}(?:multi-)?{_SIGHT}"
        r"(?! (?:model|generation|edit|size))",
        rf"no endpoints found that {_TAKE} (?:input )?{_SIGHT}",  # OpenRouter
        rf"{_SIGHT}{_PART}{{0,2}}['\"`]? (?:is|are)(?: currently)? (?:not|un)(?: currently| yet)? ?"
        r"(?:supported|enabled|allowed|accepted|permitted)",
        rf"{_SIGHT}{_PART}{{0,2}} (?:is )?not supported",
        rf"not an? (?:\w+ )?(?:{_SIGHT}|vlm)\b|{_SIGHT} capabilit\w+ (?:is|are) not",
        r"missing data required for image",  # Ollama
        r"mmproj|not compiled for multimodal|no (?:vision|image) encoder",  # llama.cpp
        r"image_url['\"`]? is only supported|text[ -]only model",
        r"(?:unknown variant|unsupported|invalid|unexpected) (?:content |message |part |input )*"
        r"(?:type|value)?\W{0,4}(?:image_url|input_image|image)['\"`]",
        r"only\W+text['\"`]? (?:content|input|part|message|is|are)",
        r"content\.type .{0,20}\['text'\]|should be 'text'",  # Zhipu, pydantic
        r"content['\")\]]*\s?:? (?:value )?must be a string",  # Groq
        r"content['\"`]?: expected (?:a |an )?string",  # OpenAI
        r"type must be string, but is array",  # llama.cpp
        r"messages\W+\d+\W+(?:\w+\W+)?content\W+(?:str\W+)?"
        r".{0,30}(?:valid string|str type expected)",  # pydantic
        rf"at (?:most|maximum) \d+ {_SIGHT}|too many {_SIGHT}",
        rf"(?:maximum|max|number|limit|up to|more than)(?: \w+)? ?(?:of )?(?:\d+ )?{_PICTURE}\b"
        r".{0,30}(?:exceed|allowed|supported|reached|per (?:request|prompt|message))",
        rf"maximum (?:number )?of (?:\d+ )?{_PICTURE}\b",
        rf"only (?:include|supports?|accepts?|allows?) (?:up to )?(?:\d+|one|a single) {_PICTURE}",
    ]
)
#: A picture was refused for its size, its form or how it was sent.
BAD_IMAGE_CODES = _any_of(
    [
        r"(?:invalid|unsupported)\w*image(?:$|url|format|size|type|data|file|media|base64)",
        r"image\w*(?:toolarge|toosmall|toobig|parseerror|notsupported|unsupported|invalid)",
        r"invalidbase64|mimetype|mediatype",
    ]
)
BAD_IMAGE_WORDS = _any_of(
    [
        r"(?:invalid|unsupported|corrupt\w*|malformed|unrecognized) (?:[\w']+ )?"
        rf"{_PICTURE}(?:_url)?\b",
        rf"{_PICTURE}\b.{{0,60}}(?:too (?:large|small|big)|exceeds? |larger than|smaller than)",
        rf"{_PICTURE}\b.{{0,60}}(?:at least \d+|do(?:es)? not meet|unsupported)",
        rf"{_PICTURE}\b(?: \w+){{0,4}} (?:must be|(?:is|are|was) (?:invalid|corrupt))",
        rf"not (?:a |an |represent a )?(?:valid|supported) {_PICTURE}",
        rf"{_PICTURE}\b(?: \w+){{0,4}} not (?:a |an )?(?:valid|supported)",
        r"(?:failed to|unable to|cannot|can't|could not) (?:load|decode|process|open|identify|parse"
        rf"|read|handle|take) (?:\w+ ){{0,2}}{_PICTURE}\b",
        r"(?:mime|media)[ -]?type|payload too large|request entity too large",
    ]
)

#: The server does not know the model, does not serve it, or not to this account.
MODEL_CODES = _any_of(
    [
        r"model.*(?:not|denied|decommission|deprecat|retired|block|unavail|invalid)",
        r"(?:invalid|unknown|unsupported|nosuch).*model",
        r"deploymentnotfound|operationnotsupported",  # Azure
        r"invalidendpoint",  # Volcengine
        r"^1211$",  # Zhipu
        r"^20012$",  # SiliconFlow
    ]
)
_SUBJECT = rf"(?:\bmodels?\b|{MODEL}|\bdeployment\b)[^,;\n]{{0,100}}"
_IS = r"(?:is|are|was|has been|have been|be)"
_USABLE = (
    r"(?:valid|known|supported|served|available|loaded|allowed|enabled|active|activated|longer"
    r"|chat)"
)
MODEL_WORDS = _any_of(
    [
        rf"{_SUBJECT}(?:do(?:es)? not exist|doesn't exist|not exist)",
        rf"{_SUBJECT}(?:not|cannot|can't) (?:be )?found",
        rf"{_SUBJECT}{_IS} (?:not |no |un)(?:an? |any |currently |yet )?{_USABLE}",
        rf"{_SUBJECT}isn't {_USABLE}",
        rf"{_SUBJECT}{_IS} (?:decommissioned|deprecated|retired|discontinued|removed)",
        rf"{_SUBJECT}{_IS} (?:denied|unavailable|disabled|unknown|blocked at)",
        rf"{_SUBJECT}(?:not recognized|not activated)",
        rf"{_SUBJECT}does not (?:work with|support) .{{0,30}}(?:chat|completion|operation|api)",
        r"(?:unknown|invalid|no such|unrecognized|unsupported|nonexistent|incorrect|non-serverless)"
        r" (?:\w+ )?model\b",
        r"(?:not found|could not find|does not recognize)(?: the)? model\b",
        r"(?:access|permission)\w* (?:to )?(?:use )?(?:the |this |requested )*model\b",
        r"models? (?:name |id |identifier )?(?:is|are) invalid|provider not provided",
        r"verified to use the model|not activated the model|specified model",
        r"no models? (?:is |are )?loaded|not a chat model|only supported in v1/",
        r"no (?:endpoints|allowed providers|providers)\b",  # OpenRouter
        r"allowed now, your model",  # FastChat
        r"模型.{0,30}(?:不存在|未开通|无权|不支持|未找到|已下线)",
        r"无权.{0,10}模型|不支持.{0,6}模型",
    ]
)
#: Words of a failure with status 404 that speak of a model.
SPEAKS_OF_MODEL = re.compile(rf"\bmodels?\b|{MODEL}|\bdeployment\b|模型")

#: There is nothing at this address.
ADDRESS_WORDS = _any_of(
    [
        r"invalid url|url error|unrecognized request url|url\.not_found",
        r"no route|route .{0,60}not found|cannot (?:post|get) /",
        r"(?:unknown|unsupported|invalid|unexpected) (?:endpoint|path|route|request url)\b",
        r"method not allowed|page not found|file not found",
    ]
)

#: Words that refuse a field of a request near its name.
REFUSES_FIELD = _any_of(
    [
        r"unsupported|not support|n't support|not (?:currently )?supported|unknown|unrecognized",
        r"not permitted|not allowed|unexpected|deprecated|invalid|illegal|not valid|not available",
        r"extra_forbidden|(?:cannot|can't) (?:both )?be|must be|should be|must not|non-default",
        r"unavailable|may only|incompatible|only (?:the default|\w+=)|not recognized|no longer",
        r"not enabled|参数非法|不支持",
    ]
)
#: Words that name a field to send instead.
ADVICE = re.compile(
    r"(?:\buse|did you mean|instead of|switch to)\s+['`\"]?\w+|\b\w+_params=\[[^\]]*\]"
)
