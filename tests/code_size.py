"""How large the code is, at one revision or at several beside each other: ``python -m tests.code_size HEAD~50 HEAD``.

Product is what the five packages hold of Python, SQL and Lua. Each figure counts what a reader meets.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PACKAGES = ("cdc", "connectors", "snapshot", "sinks", "spark")
CODE = (".py", ".sql", ".lua")
FULL = 25
"""A folder of more files than this is hard to hold in the head."""
_HAZARD = re.compile(r"\bH\d{1,3}\b")
_PROTOCOL = re.compile(r"^class \w+\((?:.*\b)?Protocol\b", re.MULTILINE)


def files_at(revision: str) -> Mapping[PurePosixPath, str]:
    """The code of the packages and the tests, by path."""
    done = subprocess.run(["git", "archive", revision, *PACKAGES, "tests"], cwd=ROOT, capture_output=True, check=True)
    found: dict[PurePosixPath, str] = {}
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            content = archive.extractfile(member) if path.suffix in CODE else None
            if content is not None:
                found[path] = content.read().decode()
    return found


def figures(files: Mapping[PurePosixPath, str]) -> Mapping[str, int]:
    """
    >>> found = figures({PurePosixPath("cdc/a.py"): "# (H7)", PurePosixPath("cdc/b/c.py"): "x = 1"})
    >>> found["product lines"], found["numbers of hazards in the product"], found["loose files beside folders"]
    (2, 1, 1)
    """
    product = {path: text for path, text in files.items() if path.parts[0] in PACKAGES}
    tests = [text for path, text in files.items() if path.parts[0] == "tests" and path.suffix == ".py"]
    folders = Counter(path.parent for path in product)
    parents = {folder.parent for folder in folders}
    return {
        "product lines": lines(product.values()),
        "product files": len(product),
        "files of over 400 lines": sum(text.count("\n") > 400 for text in product.values()),
        "folders of over 25 files": sum(count > FULL for count in folders.values()),
        "loose files beside folders": sum(path.parent in parents and path.stem != "__init__" for path in product),
        "protocols": sum(len(_PROTOCOL.findall(text)) for text in product.values()),
        "numbers of hazards in the product": sum(len(_HAZARD.findall(text)) for text in product.values()),
        "test lines": lines(tests),
    }


def lines(texts: Iterable[str]) -> int:
    """How many lines the texts have together."""
    return sum(len(text.splitlines()) for text in texts)


def main(revisions: Sequence[str]) -> None:
    """Print a table with one column for each revision."""
    columns = {revision: figures(files_at(revision)) for revision in revisions or ["HEAD"]}
    print(f"{'':36}" + "".join(f"{revision[:12]:>14}" for revision in columns))
    for name in next(iter(columns.values())):
        print(f"{name:36}" + "".join(f"{column[name]:>14,}" for column in columns.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
