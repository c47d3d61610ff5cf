"""Profiles in files."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isa.image import write_atomically
from sim.profile.checks import check_profile
from sim.profile.errors import REMOVED_FIELDS, ProfileError, RemovedFieldError


class ProfileObject(dict[str, Any]):
    """A JSON object of a profile that was read: a dict that refuses removed fields.

    `[]` and `get` do. Asking for one is a consumer that was not migrated; a None would become an
    empty column.

    Raises:
        RemovedFieldError: on either access; it is no KeyError, so that a fallback cannot hide it.
    """

    def __missing__(self, name: str) -> Any:
        if name in REMOVED_FIELDS:
            raise RemovedFieldError(name, REMOVED_FIELDS[name])
        raise KeyError(name)

    def get(self, key: str, default: Any = None, /) -> Any:
        """The member called `key`, or `default`."""
        try:
            return self[key]
        except KeyError:
            return default


def write_profile(profile: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Check `profile` and write it as JSON; the old file stays whole until the new one is complete.

    Raises:
        ProfileError: it is not a valid profile; nothing is written.
        OSError: the file cannot be written.
    """
    check_profile(profile)
    text = json.dumps(profile, indent=2, allow_nan=False) + "\n"
    write_atomically(path, text.encode())


def read_profile(path: str | os.PathLike[str]) -> ProfileObject:
    """Read and check a profile of schema version 4 or 5; its objects are `ProfileObject`s.

    Raises:
        ProfileError: not a profile, not valid, or of another version; the message names the file.
        OSError: the file cannot be read.
    """
    try:
        profile = json.loads(
            Path(path).read_bytes(), object_pairs_hook=ProfileObject, parse_constant=_refuse
        )
        if not isinstance(profile, ProfileObject):
            raise ProfileError(f"a profile is a JSON object, not {type(profile).__name__}")
        check_profile(profile)
    except RecursionError as error:
        raise ProfileError(f"{path}: not JSON that can be a profile: nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: not JSON: {error}") from error
    except json.JSONDecodeError as error:
        raise ProfileError(f"{path}: not JSON: {error}") from error
    except ProfileError as error:
        error.args = (f"{path}: {error}",)
        raise
    return profile


def _refuse(constant: str) -> Any:
    raise ProfileError(f"{constant} is not a JSON number")
