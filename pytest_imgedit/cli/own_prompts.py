"""The prompts of an image_edit_benchmark config, by category, as a protocol in TOML."""

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from pytest_imgedit.core.pairs import category_slug
from pytest_imgedit.core.text import printable

#: What their prompts are called, and what the protocol calls them.
KEYS = {
    "system": "system",
    "system_prompt": "system",
    "user": "user",
    "user_prompt": "user",
    "user_prompt_template": "user",
}
#: Names of the prompts for all other categories.
DEFAULT = ("default", "默认")
#: The variable of a template for each of their placeholders.
VARIABLES = {
    "edit_instruction": "instruction",
    "instruction": "instruction",
    "original_description": "description",
    "description": "description",
    "rationale_short": "reference_text",
    "rationale": "reference_text",
    "subset": "category",
    "category": "category",
}
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_IMAGES = "Source image:\n{{ source }}\nEdited image:\n{{ edited }}\n"
#: Characters that TOML takes in no text as they are.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass
class PromptTexts:
    """Texts of a config's prompts by category slug, an empty one for all other categories."""

    system: dict[str, str] = field(default_factory=dict)
    user: dict[str, str] = field(default_factory=dict)

    def take(self, category: str, kind: str, text: str) -> bool:
        """Take a text as `system` or `user` of a category; return whether it had none."""
        texts = self.system if kind == "system" else self.user
        slug = "" if category in DEFAULT else category_slug(category)
        if slug in texts:
            return False
        texts[slug] = text
        return True

    def protocol(self, origin: str) -> str:
        """Return the protocol: that of the seeds, with these texts for their categories."""
        shipped = files("pytest_imgedit.protocols").joinpath("seeds.toml").read_text("utf-8")
        _, _, rest = shipped.partition("\n")  # without its comment
        rest = _with_texts(rest, "system", self.system, before="")
        rest = _with_texts(rest, "user", self.user, before=_IMAGES)
        return (
            f"# The prompts of {printable(origin)} by category. A category without one has that\n"
            f"# of the protocol seeds, and reply and score are as there.\n{rest}"
        )


def _with_texts(protocol: str, name: str, texts: Mapping[str, str], before: str) -> str:
    """Return a protocol with texts in the key `name`, each behind the template `before`; its own
    text stays for categories without one.
    """
    templates = {slug: before + template(text.strip()) for slug, text in texts.items()}
    match = re.search(rf'^{name} = """\n(.*?)"""$', protocol, re.M | re.S)
    if not templates or match is None:
        return protocol
    new = _by_category(templates, match[1])
    return f"{protocol[: match.start(1)]}{new}{protocol[match.end(1) :]}"


def template(text: str) -> str:
    """Return the template of a prompt, in which only known placeholders are variables.

    A text with placeholders whose other braces are doubled is read as `str.format` does.
    """
    text = text.replace("\x00", "")  # marks an image
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError:
        parts = []
    if _is_format(parts):
        return "".join(_literal(literal) + _variable(name or "") for literal, name, _, _ in parts)
    pieces = []
    for index, piece in enumerate(_PLACEHOLDER.split(text)):  # text and names in turn
        is_name = index % 2 == 1
        if is_name:
            pieces.append(_variable(piece) or _literal(f"{{{piece}}}"))
        else:
            pieces.append(_literal(piece))
    return "".join(pieces)


def _is_format(parts: Sequence[tuple[str, str | None, str | None, str | None]]) -> bool:
    """Return whether a parsed text has fields, and all of them are names of known placeholders."""
    has_fields = False
    for _, name, format_spec, conversion in parts:
        if name is None:
            continue
        has_fields = True
        if not _variable(name) or format_spec or conversion is not None:
            return False
    return has_fields


def _variable(placeholder: str) -> str:
    name = VARIABLES.get(placeholder.removesuffix("_en").removesuffix("_zh"))
    return f"{{{{ {name} }}}}" if name else ""


def _literal(text: str) -> str:
    """Return a text that Jinja does not read: each of its tags begins with a brace."""
    return text.replace("{", "{{ '{' }}")


def _by_category(templates: Mapping[str, str], otherwise: str) -> str:
    """Return one template for all categories, as text of TOML; `otherwise`, which is that already,
    is for categories that have no template.
    """
    last = otherwise
    cases = ""
    for slug, text in templates.items():
        if slug:
            keyword = "elif" if cases else "if"
            cases += f'{{% {keyword} category == "{slug}" %}}{_toml(text)}\n'
        else:
            last = f"{_toml(text)}\n"
    if not cases:
        return last
    return f"{cases}{{% else %}}{last}{{% endif %}}\n"


def _toml(text: str) -> str:
    """Return a text as part of a multi-line basic string."""
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
