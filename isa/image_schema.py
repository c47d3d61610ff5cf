"""The file format of a program image: its JSON Schema, its checksum, packing and unpacking.

`isa.image` adds the checks that a schema cannot express.
"""

import hashlib
import json
from typing import Any

import jsonschema


class ImageError(ValueError):
    """An image that cannot be used; the message names what is wrong and the way out."""


#: The way out when a file is damaged or inconsistent.
REMAKE = "assemble the program again"

FORMAT = "plena-program-image"
VERSION = 1

EXPLICIT_MARKERS = "explicit_stage_markers"
LEGACY_COMMENTS = "legacy_comment_substrings"
TAG_ORIGINS = (EXPLICIT_MARKERS, LEGACY_COMMENTS)

_STRINGS = {"type": "array", "items": {"type": "string"}}

#: The loader checks the elements of the columns: through the schema that takes a second or more.
_COLUMN = {"type": "array"}

CONTENT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": [
        "words",
        "stages",
        "pairs",
        "lines",
        "source",
        "vocabulary",
        "symbols",
        "tag_origin",
        "unresolved_stage_markers",
        "config",
        "emitters",
    ],
    "properties": {
        "words": {**_COLUMN, "description": "instruction words, 0 to 2^32-1, one per pc"},
        "stages": {**_COLUMN, "description": "per pc, an index into vocabulary"},
        "pairs": {**_COLUMN, "description": "per pc, the routed pair, or -1"},
        "lines": {**_COLUMN, "description": "per pc, the line of source, from 1"},
        "source": {**_STRINGS, "description": "the source, line by line"},
        "vocabulary": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "uniqueItems": True,
            "minItems": 1,
            "maxItems": 256,
            "description": "the stage names that the tags refer to, in the order of the indices",
        },
        "symbols": {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 0},
            "description": "label to pc; a label at the end has the program's length",
        },
        "tag_origin": {"enum": list(TAG_ORIGINS)},
        "unresolved_stage_markers": {
            **_STRINGS,
            "uniqueItems": True,
            "description": "stage names not in the vocabulary, which kept the stage before them",
        },
        "config": {
            "type": ["object", "null"],
            "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
            "description": "the fields of the configuration that the program was made for",
        },
        "emitters": {
            "type": ["object", "null"],
            "description": "what the compiler says about its emitters",
        },
    },
}

IMAGE_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "PLENA program image",
    "type": "object",
    "additionalProperties": False,
    "required": ["format", "version", "sha256", "content"],
    "properties": {
        "format": {"const": FORMAT},
        "version": {"const": VERSION},
        "sha256": {
            "type": "string",
            "pattern": "^[0-9a-f]{64}$",
            "description": "over the UTF-8 of content as JSON with sorted keys and no white space",
        },
        "content": CONTENT_SCHEMA,
    },
}

_VALIDATOR = jsonschema.Draft202012Validator(IMAGE_SCHEMA)
_MESSAGE_LIMIT = 200


def _canonical(content: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(
            content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode()
    except (TypeError, ValueError) as error:
        raise ImageError(f"the image holds a value that JSON cannot carry: {error}") from error


def checksum(content: dict[str, Any]) -> str:
    """SHA-256 over `content`, independent of the order of keys and of white space."""
    return hashlib.sha256(_canonical(content)).hexdigest()


def pack(content: dict[str, Any]) -> bytes:
    """The file for `content`; ImageError for a value that JSON cannot carry."""
    head = json.dumps({"format": FORMAT, "version": VERSION, "sha256": checksum(content)})
    return b'%s, "content": %s}\n' % (head[:-1].encode(), _canonical(content))


def unpack(data: bytes) -> dict[str, Any]:
    """The content of a file; ImageError when it is damaged or not in this format."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ImageError(f"not JSON, or cut short ({error}); {REMAKE}") from error
    for problem in _VALIDATOR.iter_errors(document):
        message = problem.message
        if len(message) > _MESSAGE_LIMIT:
            message = f"{message[: _MESSAGE_LIMIT // 2]} ... {message[-_MESSAGE_LIMIT // 2 :]}"
        raise ImageError(f"{problem.json_path}: {message}; {REMAKE}")
    content = document["content"]
    if checksum(content) != document["sha256"]:
        raise ImageError(f"the checksum does not match: the file is damaged or edited; {REMAKE}")
    return content
