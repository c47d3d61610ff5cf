"""Built engines on disk, for a person: python -m sim.cache list | clear."""

import argparse
import time
from collections.abc import Sequence

from isa.command import leave_with
from sim.compiled import cache


def _list() -> None:
    found = cache.entries()
    print(f"{cache.cache_root()}: {len(found)} built engine{'' if len(found) == 1 else 's'}")
    for entry in found:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.manifest["created"]))
        seconds = sum(entry.manifest["seconds"].values())
        print(
            f"{entry.key[:12]}  {entry.manifest['config']:10}  {made}  {entry.size / 1e6:5.1f} MB  "
            f"built in {seconds:.1f} s by {entry.manifest['compiler']}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Lists or removes the engines that were compiled before."""
    parser = argparse.ArgumentParser(
        prog="python -m sim.cache",
        description="The cache of the engines 'compiled' and 'verilator'. An entry is used again "
        "only for the same sources, configuration, versions, compiler and processor, so old ones "
        "only take space.",
    )
    parser.add_argument("action", choices=("list", "clear"), help="show all entries, or remove all")
    action = parser.parse_args(arguments).action
    if action == "list":
        _list()
    else:
        count = cache.remove()
        print(f"removed {count} built engine{'' if count == 1 else 's'} from {cache.cache_root()}")
    return 0


if __name__ == "__main__":
    leave_with(main)
