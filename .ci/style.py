"""Counts the words that docs/design/style.md bans, in names, comments and prose; ends with 1 if one is above its limit.

    python .ci/style.py [--list]

A limit above zero has its reason next to it.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHRASES = (
    "made anew", "anew", "given away", "give away", "came in", "as it came", "told", "tells of", "likewise", "beside",
    "in the place of", "but for", "as of", "stands for", "is no", "are no", "nobody", "of such", "such a one", "but of",
)  # fmt: skip
WORDS = ("found", "known", "given", "its", "it", "others", "held", "kept", "taken", "told", "shown", "bare", "anew")
"""Participles and pronouns that are no names by themselves."""
MOST_WORDS = 40
LIMITS: dict[str, int] = {}


def texts() -> Iterator[tuple[Path, str]]:
    for pattern in (
        "csrc/**/*.h",
        "csrc/**/*.cpp",
        "python/partax/**/*.py",
        "docs/**/*.md",
        "README.md",
        "CHANGELOG.md",
    ):
        for file in sorted(ROOT.glob(pattern)):
            if file.name != "style.md":
                yield file, file.read_text(encoding="utf-8")


def without_code(file: Path, text: str) -> str:
    """The prose of a page, or all of a source file."""
    if file.suffix != ".md":
        return text
    # Generated from results, whose rows have the names of their time.
    text = re.sub(r"<!-- (\w+ ?\w*) begin -->.*?<!-- \1 end -->", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def identifiers(text: str) -> Iterator[str]:
    """Names that stand outside of comments and strings."""
    code = re.sub(r'""".*?"""|"(?:[^"\\\n]|\\.)*"', "", text, flags=re.DOTALL)
    return iter(re.findall(r"(?<![\w.])[A-Za-z_]\w*", re.sub(r"(#|//).*", "", code)))


def main() -> int:
    is_listed = "--list" in sys.argv
    phrases = dict.fromkeys(PHRASES, 0)
    words = dict.fromkeys(WORDS, 0)
    for file, text in texts():
        prose = re.sub(r"\s+", " ", without_code(file, text)).lower()
        for phrase in PHRASES:
            hits = len(re.findall(rf"(?<![\w-]){phrase}(?![\w-])", prose))
            phrases[phrase] += hits
            if is_listed and hits:
                print(f"{file.relative_to(ROOT)}: {phrase} {hits}")
        if file.suffix != ".md":
            for name in identifiers(text):
                if name in words:
                    words[name] += 1
                    if is_listed:
                        print(f"{file.relative_to(ROOT)}: name {name}")
    above = {phrase: count for phrase, count in phrases.items() if count > LIMITS.get(phrase, 0)}
    print("phrases:", above or "none")
    print("names:", sum(words.values()), {word: count for word, count in words.items() if count})
    return int(bool(above) or sum(words.values()) > MOST_WORDS)


if __name__ == "__main__":
    sys.exit(main())
