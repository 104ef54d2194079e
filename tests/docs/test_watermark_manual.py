"""The watermark's page: its members are those of the code, and its programs judge a token as the code does."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import pyspark
import pytest

from cdc.freshness.rules import NotShown, Wanted
from cdc.record.position import Lsn
from cdc.record.progress import Hold, Watermark
from cdc.record.source_lineage import SourceLineage
from cdc.record.tokens import Token
from tests.waiting import TIME_SCALE

MANUAL = (Path(__file__).parents[2] / "sinks" / "WATERMARK.md").read_text(encoding="utf-8")
JACKSON = sorted(str(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("jackson-*.jar"))
SYSTEM, OTHER = "7301444403801980345", "7301444403801980346"
MARK = Watermark(epoch=1, lsn=0x1_0000_0050, lineage=SourceLineage(SYSTEM, 3, ((1, 0x40), (2, 0x1_0000_0030))))
HOLD = Hold(table="public.a", reason="public.a: no column takes it")
MARKS = [
    MARK,
    replace(MARK, lsn=0),
    replace(MARK, epoch=9, lsn=2**52),
    replace(MARK, lineage=None),
    replace(MARK, lineage=SourceLineage(SYSTEM, 3)),
    replace(MARK, lineage=SourceLineage(SYSTEM, 3, ())),
    replace(MARK, lineage=SourceLineage(OTHER, 3)),
    replace(MARK, held={"shop.public.a": HOLD}),
    replace(MARK, aside={"shop.public.a": "public.a is set aside"}),
    None,
]
LSNS = (0, 0x3F, 0x40, 0x41, 0x1_0000_0030, 0x1_0000_0031, 0x1_0000_0050, 0x1_0000_0051, 2**52)
TOKENS = [Token(system, timeline, Lsn(lsn)) for system in (SYSTEM, OTHER) for timeline in range(1, 5) for lsn in LSNS]
MALFORMED = [
    "", "nonsense", f"{SYSTEM}/3", f"{SYSTEM}/3:0/", f"{SYSTEM}/3:0/1 rubbish", f"x{SYSTEM}/3:0/1", f"{SYSTEM}/3:0/-5",
    f"{SYSTEM}/3:100000000/1", f"{SYSTEM}/3:0/100000050", f"{SYSTEM}/3:0/0x1", f"{SYSTEM}/3:FFFFFFFF/FFFFFFFF",
    f"{SYSTEM}/3:0/1_0", f"{SYSTEM}/3:0/G", f"{SYSTEM}/-3:0/1", f"{SYSTEM}/\u0663:0/1", f"{SYSTEM}/3:0/1:2",
    f"{SYSTEM}/99999999999:0/1", f" {SYSTEM}/3:0/1", f"{SYSTEM}:3/0:1",
]  # fmt: skip
"""Texts that are no tokens, and a place that no server reaches."""
NEWER = [orjson.dumps({**orjson.loads(MARK.to_json()), "format": number}).decode() for number in (2, 3)]

HARNESS = {
    "python": """import json, math, re, sys

{shows}

for line in sys.stdin:
    token, _, watermark = line.rstrip("\\n").partition("\\t")
    print(str(bool(shows(watermark, token))).lower())
""",
    "go": """package main

import ("bufio"; "encoding/json"; "fmt"; "os"; "regexp"; "strconv"; "strings")

{shows}

func main() {{
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {{
		token, watermark, _ := strings.Cut(lines.Text(), "\\t")
		fmt.Println(shows([]byte(watermark), token))
	}}
}}
""",
    "javascript": """{shows}

for (const line of require("fs").readFileSync(0, "utf8").trimEnd().split("\\n")) {{
  const [token, watermark] = line.split("\\t");
  console.log(shows(watermark, token));
}}
""",
    "java": """import com.fasterxml.jackson.databind.*;

class Shows {{
{shows}

    public static void main(String[] none) throws Exception {{
        var lines = new java.util.Scanner(System.in);
        while (lines.hasNextLine()) {{
            String[] line = lines.nextLine().split("\\t");
            System.out.println(shows(line[1], line[0]));
        }}
    }}
}}
""",
}


@dataclass(frozen=True)
class Language:
    ending: str
    command: tuple[str, ...]
    needs: tuple[str, ...]


LANGUAGES = {
    "python": Language("py", (sys.executable,), ()),
    "go": Language("go", ("go", "run"), ("go",)),
    "javascript": Language("js", ("node",), ("node",)),
    "java": Language("java", ("java", "-cp", ":".join(JACKSON)), ("java", "javac")),
}


def code(language: str) -> str:
    found = re.search(rf"<!-- shows {language} -->\n```{language}\n(.*?)```\n<!-- /shows", MANUAL, re.DOTALL)
    assert found is not None, language
    return found[1]


def expected(token: Token, mark: Watermark | None) -> bool:
    try:
        return Wanted("cache", token).met(mark)
    except NotShown:
        return False


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.slow
def test_each_program_judges_a_token_as_the_code_does(language: str, tmp_path: Path) -> None:
    spoken = LANGUAGES[language]
    for needed in spoken.needs:
        if shutil.which(needed) is None:
            pytest.skip(f"no {needed} here")
    program = tmp_path / f"Shows.{spoken.ending}"
    program.write_text(HARNESS[language].format(shows=code(language)), encoding="utf-8")
    cases = [(token, mark) for mark in MARKS for token in TOKENS]
    lines = [f"{token}\t{mark.to_json().decode() if mark is not None else 'null'}" for token, mark in cases]
    wanted = [str(expected(*case)).lower() for case in cases]
    # No program says of these that they are shown, and none ends.
    never = [f"{text}\t{MARK.to_json().decode()}" for text in MALFORMED]
    never += [f"{token}\t{text}" for token in TOKENS for text in NEWER]
    lines, wanted = lines + never, wanted + ["false"] * len(never)
    done = subprocess.run(
        [*spoken.command, str(program)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=120 * TIME_SCALE,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    found = done.stdout.split()
    wrong = [line for line, said, right in zip(lines, found, wanted, strict=True) if said != right]
    assert not wrong
    assert found.count("true") > 20


def test_every_member_of_a_watermark_is_on_the_page() -> None:
    whole = replace(
        MARK,
        offsets={"shop.public.a": {0: 1}},
        topic_ids={"shop.public.a": "id"},
        held={"shop.public.a": HOLD},
        level_ms=1,
        aside={"shop.public.b": "set aside"},
        epoch_id="first",
    )
    rows = [line.split("|")[1] for line in MANUAL.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert orjson.loads(whole.to_json()).keys() == named


def test_the_watermark_on_the_page_is_one() -> None:
    shown = re.search(r"```json\n(.*?)```", MANUAL, re.DOTALL)
    assert shown is not None
    read = Watermark.from_json(shown[1].encode())
    assert read.lineage == SourceLineage(SYSTEM, 2, ((1, 20_000_000),))
