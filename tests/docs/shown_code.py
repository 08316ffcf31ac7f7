"""Guards what pages and docstrings show: every Python block of a text runs, in order, in one namespace, and gives the
output that it shows.

How a block shows output: as a `>>>` session (checked by doctest, `...` stands for anything), as
`# -> value` at the end of a statement (its value, or what it prints), or as a ```text block right below, which is all
that the block prints.
"""

import ast
import contextlib
import doctest
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from library_trees import HAS_FLAX

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    code: str
    line: int  # of its first line, from 1
    output: str | None  # the text block right below


def python_blocks(text: str) -> Iterator[Block]:
    fences = list(FENCE.finditer(text))
    for fence, below in zip(fences, [*fences[1:], None], strict=True):
        if fence[1] != "python":
            continue
        output = None
        if below is not None and below[1] == "text" and not text[fence.end() : below.start()].strip():
            output = below[2]
        yield Block(fence[2], text.count("\n", 0, fence.start(2)) + 1, output)


def check(expected: str, actual: str, where: str) -> None:
    matches = doctest.OutputChecker().check_output(expected.strip() + "\n", actual.strip() + "\n", OPTIONS)
    assert matches, f"{where}: the page shows\n{expected.strip()}\nbut it is\n{actual.strip()}"


def run_plain(block: Block, names: dict[str, Any], filename: str) -> None:
    tree = ast.parse(block.code, filename)
    lines = block.code.splitlines()
    printed_by_block = ""
    for statement in tree.body:
        last_line = lines[(statement.end_lineno or statement.lineno) - 1]
        where = f"{filename}:{block.line + (statement.end_lineno or 0) - 1}"
        ast.increment_lineno(statement, block.line - 1)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if isinstance(statement, ast.Expr):
                value = eval(compile(ast.Expression(statement.value), filename, "eval"), names)
            else:
                value = exec(compile(ast.Module([statement], []), filename, "exec"), names)
        printed_by_block += printed.getvalue()
        if "# -> " in last_line:
            output = last_line.rpartition("# -> ")[2]
            check(output, printed.getvalue() or repr(value), where)
    if block.output is not None:
        check(block.output, printed_by_block, f"{filename}:{block.line}")


def run_session(block: Block, names: dict[str, Any], filename: str) -> None:
    parser = doctest.DocTestParser()
    test = parser.get_doctest(block.code, names, filename, filename, block.line - 1)
    test.globs = names  # not a copy: the next block goes on from here
    report = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    runner.run(test, out=report.write, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0, report.getvalue()


def run_blocks(text: str, names: dict[str, Any], filename: str) -> int:
    blocks = [block for block in python_blocks(text) if HAS_FLAX or "from flax" not in block.code]
    for block in blocks:
        is_session = block.code.lstrip().startswith(">>>")
        (run_session if is_session else run_plain)(block, names, filename)
    return len(blocks)
