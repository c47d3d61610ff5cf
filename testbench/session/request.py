"""What is wrong with a request, and the checks of the files that it is to write."""

from collections.abc import Iterable, Mapping
from pathlib import Path


class RequestError(ValueError):
    """A request that cannot be run: the message names the thing and the way out."""


def check_outputs(outputs: Iterable[tuple[str, Path]], inputs: Mapping[Path, str]) -> None:
    """Refuse, before anything runs, outputs that cannot be written or would destroy something.

    Args:
        outputs: the option that asks for each file, and the file.
        inputs: the files that are read, resolved, and what each is.

    Raises:
        RequestError: a folder that is missing, a folder in the place of the file, two outputs in
            one file, or an output over an input.
    """
    taken: dict[Path, str] = {}
    for option, path in outputs:
        whole = path.resolve()
        if whole.is_dir():
            raise RequestError(f"{option}: {path} is a folder; name a file in it")
        if not whole.parent.is_dir():
            raise RequestError(f"{option}: the folder {path.parent} does not exist; make it first")
        if whole in inputs:
            raise RequestError(
                f"{option}: {path} is {inputs[whole]} and would be overwritten; name another file"
            )
        if whole in taken:
            raise RequestError(f"{option}: {path} is written by {taken[whole]} too; name two files")
        taken[whole] = option
