"""The commands that run a script unchanged: `python -m partax explain script.py args...` explains what it traces and
compiles, `python -m partax doctor script.py args...` reports which lines make its programs slow, and
`python -m partax equinox script.py args...` makes Equinox use partax, and `python -m partax run script.py args...` has
`partax.jit` instead of `jax.jit`. `python -m partax store DIRECTORY` lists the stored programs of a directory.
"""

import argparse
import builtins
import contextlib
import os
import runpy
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from partax import explain, report
from partax._store import command as store_command


def main(arguments: list[str]) -> None:
    """Run the command line `python -m partax ARGUMENTS`."""
    parser = argparse.ArgumentParser(prog="python -m partax", description="Tools of partax.")
    commands = parser.add_subparsers(required=True)
    what = "run a script, explain each trace when it happens, and report the costs at the end"
    script = _add_command(commands, "explain", _explain, what, "[--json FILE] ")
    script.add_argument("--json", metavar="FILE", help="also write the report to this file, as JSON")
    what = "run a script and report, line by line, what makes its compiled programs slow"
    script = _add_command(commands, "doctor", _doctor, what, "[--html FILE] [--trace-profile] ")
    script.add_argument("--html", metavar="FILE", help="also write the findings to this file")
    script.add_argument("--trace-profile", action="store_true", help="also report the trace time of each line")
    _add_command(commands, "equinox", _equinox, "run a script and make Equinox, and what imports it, use partax")
    _add_command(commands, "run", _jit, "run a script that has partax.jit instead of jax.jit in its own code")
    what = "list or delete the programs in a directory of partax.store"
    store = commands.add_parser("store", help=what, description=f"{what[0].upper()}{what[1:]}.")
    store_command.add_arguments(store)
    store.set_defaults(run=lambda options: store_command.run(options, _run))
    options = parser.parse_args(arguments)
    if not getattr(options, "module", True) and not os.path.isfile(options.script):
        options.parser.error(f"found no file {options.script!r}, expected a Python script")
    options.run(options)


def _add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], None], what: str, files: str = ""
) -> Any:
    usage = f"%(prog)s [-h] {files}(script.py | -m module) [argument ...]"
    command = commands.add_parser(name, usage=usage, help=what, description=f"{what[0].upper()}{what[1:]}.")
    command.set_defaults(run=run, parser=command)
    command.add_argument("-m", action="store_true", dest="module", help="run a module by its name")
    command.add_argument("script", help="the script, or the module's name")
    command.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to it as they are")
    return command


def _run(options: argparse.Namespace) -> None:
    before = dict(os.environ)
    try:
        _run_as_main(options)
    finally:
        late = [name for name in os.environ if name.startswith("JAX_") and os.environ[name] != before.get(name)]
        if late:
            print(f"partax: set {', '.join(late)} in the shell: jax was imported before the script", file=sys.stderr)


def _run_as_main(options: argparse.Namespace) -> None:
    """Run a script as `python script.py` does. Its variables stay in `__main__`, where threads, pickles and exit
    handlers look them up.
    """
    sys.argv = [options.script, *options.arguments]
    if options.module:
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        return
    file = os.path.abspath(options.script)
    with open(file, "rb") as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    sys.path[0] = os.path.dirname(os.path.realpath(file))
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__.update(__file__=file, __builtins__=builtins)
    exec(code, main.__dict__)


def _equinox(options: argparse.Namespace) -> None:
    from partax.equinox import accelerate

    accelerate()
    _run(options)


def _jit(options: argparse.Namespace) -> None:
    from partax._jit.replacement import replace_jax_jit

    replace_jax_jit()
    _run(options)


def _explain(options: argparse.Namespace) -> None:
    with contextlib.suppress(ImportError):  # no Equinox
        from partax.equinox import accelerate

        accelerate()
    explain()
    try:
        _run(options)
    finally:  # also if the script fails or exits
        costs = report()
        print(f"\npartax: what has been traced and compiled\n\n{costs}", file=sys.stderr)
        if options.json is not None:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(costs.to_json(indent=2) + "\n")


def _doctor(options: argparse.Namespace) -> None:
    from partax._doctor.page import write_page
    from partax._doctor.script import Watch, diagnoses, print_programs

    if options.html is not None:
        write_page(options.html, ())  # an error comes before a script that runs for hours
    watch = Watch(options.trace_profile)
    try:
        _run(options)
    finally:
        has_raised = not isinstance(sys.exception(), SystemExit | None)
        watch.end()
        findings = diagnoses(watch)
        print_programs(watch, findings, sys.stderr, has_raised)
        if options.html is not None:
            write_page(options.html, findings)


if __name__ == "__main__":
    main(sys.argv[1:])
