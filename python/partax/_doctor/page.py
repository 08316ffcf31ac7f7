"""One HTML file with the findings of the doctor. It needs no network and no script."""

import html
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from partax._doctor.figures import bytes_text, seconds_text
from partax._io.whole_file import replace_file

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # no page may hold these; names may
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>partax doctor</title>
<style>
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1.5rem; max-width: 78rem; font: 16px/1.5 sans-serif; overflow-wrap: anywhere; }
pre { overflow-x: auto; }
.card { border: 1px solid; border-left-width: 6px; padding: .4rem 1rem; margin: 1rem 0; }
.high { border-left-color: light-dark(#a3270b, #ffa08a); }
.medium { border-left-color: light-dark(#7a5200, #f3c969); }
.low { border-left-color: light-dark(#3d5a80, #a8c8ef); }
</style>
</head>
<body>
<h1>What the doctor found</h1>
"""


def write_page(path: str | Path, diagnoses: Sequence[Any]) -> None:
    body = "".join(map(_diagnosis_text, diagnoses)) or "<p>No program was compiled.</p>\n"
    page = _CONTROL.sub("\ufffd", f"{_HEAD}{body}</body>\n</html>\n")
    replace_file(path, lambda fresh: Path(fresh).write_text(page, "utf-8"))


def _diagnosis_text(diagnosis: Any) -> str:
    name, defined = html.escape(diagnosis.name), html.escape(diagnosis.defined)
    cards = "".join(map(_card_text, diagnosis.findings)) or "<p>Nothing was found.</p>\n"
    profile = f"<pre tabindex=0>{html.escape(str(diagnosis.trace_profile))}</pre>\n" if diagnosis.trace_profile else ""
    return f"<h2><code>{name}</code> {defined}</h2>\n{_figures_text(diagnosis.figures)}{cards}{profile}"


def _card_text(finding: Any) -> str:
    where, path, source = map(html.escape, (finding.where, finding.path if finding.file else "", finding.source))
    texts = map(html.escape, (finding.message, finding.advice))
    message, advice = (re.sub("`([^`]*)`", r"<code>\1</code>", text) for text in texts)
    return f"""<article class="card {finding.severity}">
<p><strong>{finding.severity}</strong> {finding.kind} <code>{where} </code> <code>{path}</code></p>
<pre tabindex="0"><code>{source}</code></pre>
<p>{message}</p>
<p><strong>What to do:</strong> {advice}</p>
{_figures_text(finding.figures)}</article>
"""


def _figures_text(figures: dict[str, Any]) -> str:
    return f"<p>{html.escape(', '.join(map(_figure_text, figures, figures.values())))}</p>\n"


def _figure_text(name: str, value: int | float | str) -> str:
    formats: dict[str, Callable[[Any], str]] = {"bytes": bytes_text, "seconds": seconds_text, "share": "{:.0%}".format}
    plain = str if isinstance(value, str) else "{:,}".format
    return f"{name.replace('_', ' ')}: {formats.get(name.rpartition('_')[2], plain)(value)}"
