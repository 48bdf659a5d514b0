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
        r"arrearage|freetieronly|freeexceeded",  # DashScope
        r"overdue",  # Volcengine: AccountOverdueError, ServiceOverdue
        r"billinghardlimit|billingnotactive|billingerror|spend(?:ing)?limit",  # OpenAI, Anthropic
        r"exceededcurrentquota",  # Moonshot
        r"creditlimit|creditserror|outofcredit|paymentrequired",  # Together, OpenCode
        r"budgetexceeded|exceededbudget",  # LiteLLM
        r"notenoughbalance|balancenotenough|consumetokenquotafailed",  # Novita, new-api
        r"setlimitexceeded",  # Volcengine: the limit that the account has set
        r"^(?:1113|1309)$",  # Zhipu: no balance, no plan
        r"^1008$",  # MiniMax
        r"^(?:30001|30011)$",  # SiliconFlow
    ]
)
QUOTA_WORDS = _any_of(
    [
        r"(?:insufficient|not enough|no|low) (?:\w+ ){0,2}(?:balance|credits?|funds)\b",
        r"balance(?: is)? (?:too low|insufficient|not enough|exhausted|empty)",
        r"requires (?:more|paid) (?:credits|balance)|n't have (?:any |enough )?(?:credits|balance)",
        r"out of credits|credits? (?:are |is |has been )?(?:depleted|exhausted|used up)",
        r"used all (?:\w+ ){0,3}credits|exceeded .{0,30}included credits|credit limit exceeded",
        r"spend(?:ing)? (?:limit|cap)\b.{0,60}(?:reached|exceeded)",
        r"(?:reach\w*|exceed\w*) .{0,40}(?:spend(?:ing)? (?:limit|cap)|api usage limits)\b",
        r"(?:purchase|buy) (?:more )?credits|please recharge|payment required",
        r"billing (?:hard )?limit|check your billing details",
        r"in arrears|overdue (?:balance|bill|pay)|bill is overdue",
        r"budget has been exceeded|key limit exceeded|call volume quota",
        r"free (?:allocated |tier )?quota (?:\w+ ){0,3}(?:exceeded|exhausted|used up)",
        r"free tier of .{0,30}exhausted|set inference limit",
        r"account is (?:not active|in debt)|good standing",
        r"余额不足|欠费|额度不足|额度已(?:经)?(?:用尽|耗尽|用完)|请充值",
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
PASSING_CODES = _any_of(
    [
        r"ratelimit|toomanyrequests|throttl|overload|resourceexhausted|timeout|serverbusy",
    ]
)
PASSING_WORDS = _any_of(
    [
        r"rate[ _-]?limit|too many requests|overloaded|temporarily|timed out",
    ]
)

#: The key is wrong or lacks.
KEY_CODES = re.compile(r"apikey|authentication|unauthorized|unauthenticated|invalidtoken")
KEY_WORDS = _any_of(
    [
        r"(?:api|secret|access)[ _-]?key.{0,20}(?:not valid|invalid|not found|expired|missing"
        r"|required"
        r"|disabled|revoked)",
        r"(?:invalid|incorrect|missing|no|wrong|expired|provide an?|carry the) (?:api[ _-]?"
        r"|secret )+key",
        r"login fail|invalid (?:(?:\w+ )?credentials|(?:auth\w*|access|bearer) token)",
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
        r"`?inputs`? (?:tokens \+|must have less than)|prompt_tokens",  # Text Generation Inference
        r"exceed\w* .{0,40}(?:token limit|(?:number|amount|limit) of (?:\w+ )?tokens)",
        r"number of tokens exceed|maximum allowed number of (?:\w+ )?tokens",
        rf"{_LIMIT}\W.{{0,60}}(?:too large|at most|above (?:the )?maximum|exceed|<="
        rf"|less than or equal"
        r"|cannot be greater|is limited)",
        rf"{_LIMIT}.{{0,20}}at least 1, got -|range of {_LIMIT}",
        r"(?:超长|过长|超过.{0,12}(?:长度|上限))",
    ]
)

_IMAGES = r"(?:image|vision|visual|multi-?modal|picture)s?"
_LACKS = r"(?:not|n't|cannot|can't|no|without|lacks?|unable to)"
_TAKE = r"(?:support|accept|allow|understand|capab)\w*"
#: The model takes no images, or fewer than were sent.
NO_IMAGES_WORDS = _any_of(
    [
        rf"{_LACKS} (?:\w+ )?{_TAKE} (?:[\w,/-]+ ){{0,3}}{_IMAGES}(?! (?:model|generation|edit"
        rf"|size))",
        rf"no endpoints found that {_TAKE} (?:input )?{_IMAGES}",
        rf"{_IMAGES}(?:[ _-](?:inputs?|urls?|content|understanding|data|parts?|messages?"
        rf"|attachments?)"
        rf"){{0,2}}['\"`]? (?:is|are)(?: currently)? (?:not|un)(?: currently| yet)? ?"
        r"(?:supported|enabled|allowed|accepted|permitted)",
        rf"not an? (?:\w+ )?(?:{_IMAGES}|vlm)\b|{_IMAGES} capabilit\w+ (?:is|are) not",
        r"missing data required for image|mmproj|not compiled for multimodal|no (?:vision"
        r"|image) encoder",
        r"image_url['\"`]? is only supported|text[ -]only model",
        r"(?:unknown variant|unsupported|invalid|unexpected) (?:content |message |part |input )*"
        r"(?:type|value)?\W{0,4}(?:image_url|input_image|image)['\"`]",
        r"only\W+text['\"`]? (?:content|input|part|message|is|are)",
        r"content\.type .{0,20}\['text'\]|should be 'text'",  # Zhipu, pydantic
        r"content['\")\]]*\s?:? (?:value )?must be a string|type must be string, but is array",
        r"content['\"`]?: expected (?:a |an )?string",
        r"messages\W+\d+\W+(?:\w+\W+)?content\W+(?:str\W+)?.{0,30}(?:valid string"
        r"|str type expected)",
        rf"at (?:most|maximum) \d+ {_IMAGES}|too many {_IMAGES}",
        rf"(?:maximum|max|number|limit|up to"
        rf"|more than)(?: \w+)? ?(?:of )?(?:\d+ )?{_IMAGES}\b.{{0,30}}"
        r"(?:exceed|allowed|supported|reached|per (?:request|prompt|message))",
        r"only (?:include|supports?|accepts?|allows?) (?:up to )?(?:\d+|one|a single) image",
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
        rf"(?:invalid|unsupported|corrupt\w*|malformed"
        rf"|unrecognized) (?:[\w']+ )?{_IMAGES}(?:_url)?\b",
        rf"{_IMAGES}\b.{{0,60}}(?:too (?:large|small|big)|exceeds? |larger than|smaller than"
        rf"|invalid"
        r"|at least \d+|not (?:a |an )?(?:valid|supported)|do(?:es)? not meet|must be|unsupported)",
        rf"(?:failed to|unable to|cannot|can't|could not) (?:load|decode|process|open|identify"
        rf"|parse|handle|take"
        rf"|read) (?:\w+ ){{0,2}}{_IMAGES}\b",
        r"(?:mime|media)[ -]?type|payload too large|request entity too large",
    ]
)

#: The server does not know the model, does not serve it, or not to this account.
MODEL_CODES = _any_of(
    [
        r"model.*(?:not|denied|decommission|deprecat|retired|block|unavail|invalid)",
        r"(?:invalid|unknown|unsupported|nosuch).*model|deploymentnotfound|invalidendpoint",
        r"^1211$",  # Zhipu
        r"^20012$",  # SiliconFlow
    ]
)
_IS_GONE = (
    r"(?:do(?:es)? not exist|doesn't exist|not exist|(?:not|cannot|can't) (?:be )?found"
    r"|(?:is|are|was|has been|have been|be) (?:not |no |un)(?:an? |any |currently |yet )?(?:valid"
    r"|known|supported|served|available|loaded|allowed|enabled|active|activated|longer|chat)"
    r"|isn't (?:available|supported|served|loaded)|is unknown|not recognized|not activated"
    r"|(?:has been|is|was) (?:decommissioned|deprecated|retired|discontinued|removed|denied"
    r"|unavailable|disabled)|is blocked at|does not (?:work with|support) .{0,30}(?:chat"
    r"|completion|operation"
    r"|endpoint|api))"
)
MODEL_WORDS = _any_of(
    [
        rf"(?:\bmodels?\b|{MODEL}|\bdeployment\b)[^,;\n]{{0,100}}{_IS_GONE}",
        r"(?:unknown|invalid|no such|unrecognized|unsupported|nonexistent|incorrect|not found the"
        r"|non-serverless|does not recognize(?: the)?|could not find(?: the)?) (?:\w+ )?model\b",
        r"(?:access|permission)\w* (?:to )?(?:use )?(?:the |this |requested )*model\b",
        r"models? (?:name |id |identifier )?(?:is|are) invalid|provider not provided",
        r"verified to use the model|not activated the model|specified model",
        r"no models? (?:is |are )?loaded|not a chat model|only supported in v1/",
        r"no (?:endpoints|allowed providers|providers)\b",
        r"模型.{0,30}(?:不存在|未开通|无权|不支持|未找到|已下线)|无权.{0,10}模型|不支持.{0,6}模型",
    ]
)
#: Words of a failure with status 404 that speak of a model.
SPEAKS_OF_MODEL = re.compile(rf"\bmodels?\b|{MODEL}|\bdeployment\b|模型")

#: There is nothing at this address.
ADDRESS_WORDS = _any_of(
    [
        r"invalid url|url error|unrecognized request url|url\.not_found",
        r"no route|route .{0,60}not found",
        r"cannot (?:post|get) /|(?:unknown|unsupported|invalid|unexpected) (?:endpoint|path|route"
        r"|request url)\b",
        r"method not allowed|page not found|file not found",
    ]
)

#: Words that refuse a field of a request near its name.
REFUSES_FIELD = _any_of(
    [
        r"unsupported|not support|n't support|not (?:currently )?supported|unknown|unrecognized",
        r"not permitted|not allowed|unexpected|deprecated|invalid|illegal|not valid|not available",
        r"extra_forbidden|(?:cannot|can't) (?:both )?be|must be|should be|must not|non-default",
        r"unavailable|may only|incompatible|only (?:the default|\w+=)|not recognized|no longer"
        r"|not enabled|参数非法"
        r"|不支持",
    ]
)
#: Words that name a field to send instead.
ADVICE = re.compile(
    r"(?:\buse|did you mean|instead of|switch to)\s+['`\"]?\w+|\b\w+_params=\[[^\]]*\]"
)
