"""The tables of `docs/verify.md`: all codes, and all fields that no check can see.

`python -m spark_mq.verifier.code_page docs/verify.md` writes them into the page, between its marks.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from spark_mq.verifier.codes import Code, all_codes
from spark_mq.verifier.unseen import UNSEEN

_MARKED = re.compile(r"(<!-- (codes|unseen) -->\n).*?(<!-- /\2 -->\n)", re.DOTALL)


def codes_table() -> str:
    """A section for each code, in the order of the table."""
    return "\n".join(map(_section, all_codes()))


def _section(code: Code) -> str:
    brokers = code.brokers
    rows = [("what", code.meaning), ("how", code.cause)]
    if len({brokers.v4_9, brokers.v5_0, brokers.v5_3_2}) == 1:
        rows.append(("brokers", brokers.v4_9))
    else:
        rows += [("4.9", brokers.v4_9), ("5.0 to 5.3.1", brokers.v5_0), ("5.3.2 on", brokers.v5_3_2)]
    rows.append(("do", code.remedy))
    lines = [f"### {code.name}", "", f"| {code.severity} | |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {text} |" for name, text in rows), ""])


def unseen_table() -> str:
    """A row for each field that no check can see."""
    rows = [f"| {field.of} | {field.name} | {field.why} |" for field in UNSEEN]
    return "\n".join(["| of | field | |", "| --- | --- | --- |", *rows, ""])


def filled(page: str) -> str:
    """The page with both tables between its marks."""
    tables = {"codes": codes_table(), "unseen": unseen_table()}
    return _MARKED.sub(lambda mark: f"{mark[1]}\n{tables[mark[2]]}\n{mark[3]}", page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
