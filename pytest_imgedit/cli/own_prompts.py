"""The prompts of an image_edit_benchmark config, by category, as a protocol in TOML."""

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

from pytest_imgedit.core.pairs import category_slug
from pytest_imgedit.core.sanitize import printable

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
class Prompts:
    """Texts by category slug, an empty one for all other categories."""

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
        rest = shipped.partition("\n")[2]
        for name, texts, before in (("system", self.system, ""), ("user", self.user, _IMAGES)):
            templates = {slug: before + template(text.strip()) for slug, text in texts.items()}
            match = re.search(rf'^{name} = """\n(.*?)"""$', rest, re.M | re.S)
            if templates and match:
                new = _by_category(templates, match[1])
                rest = f"{rest[: match.start(1)]}{new}{rest[match.end(1) :]}"
        return (
            f"# The prompts of {printable(origin)} by category. A category without one has that\n"
            f"# of the protocol seeds, and reply and score are as there.\n{rest}"
        )


def template(text: str) -> str:
    """Make a template of a prompt, in which only known placeholders are variables.

    A text with placeholders whose other braces are doubled is read as `str.format` does.
    """
    text = text.replace("\x00", "")  # marks an image
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError:
        parts = []
    fields = [part[1:] for part in parts if part[1] is not None]
    if fields and all(
        _variable(name or "") and (form, how) == ("", None) for name, form, how in fields
    ):
        return "".join(_literal(literal) + _variable(name or "") for literal, name, _, _ in parts)
    pieces = _PLACEHOLDER.split(text)  # text and names in turn
    return "".join(
        (_variable(piece) or _literal(f"{{{piece}}}")) if index % 2 else _literal(piece)
        for index, piece in enumerate(pieces)
    )


def _variable(placeholder: str) -> str:
    name = VARIABLES.get(placeholder.removesuffix("_en").removesuffix("_zh"))
    return f"{{{{ {name} }}}}" if name else ""


def _literal(text: str) -> str:
    """Keep a text from being read as Jinja: every tag begins with a brace."""
    return text.replace("{", "{{ '{' }}")


def _by_category(templates: Mapping[str, str], otherwise: str) -> str:
    """Return one template for all categories; `otherwise` is text of TOML already."""
    cases = "".join(
        f'{{% {"elif" if number else "if"} category == "{slug}" %}}{_toml(text)}\n'
        for number, (slug, text) in enumerate(
            (slug, text) for slug, text in templates.items() if slug
        )
    )
    last = _toml(templates[""]) + "\n" if "" in templates else otherwise
    return f"{cases}{{% else %}}{last}{{% endif %}}\n" if cases else last


def _toml(text: str) -> str:
    """Write a text as part of a multi-line basic string."""
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
