"""What results follow from: a digest of the project's sources."""

import hashlib

from testbench.mutation.mutant import ROOT


def sources_digest(*folders: str) -> str:
    """Changes with any source in these folders of the project."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted((*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.h"))):
            digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()
