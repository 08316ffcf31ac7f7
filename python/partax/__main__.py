"""The commands that run a script unchanged: `python -m partax explain script.py args...` explains what it traces and
compiles, `python -m partax doctor script.py args...` says why each program that it compiles costs what it costs,
`python -m partax equinox script.py args...` has it use partax for what it calls of Equinox. `python -m partax store
folder` lists the programs that are stored in a folder.
"""

import argparse
import builtins
import importlib.util
import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from types import ModuleType, TracebackType
from typing import Any

from partax import explain, report
from partax._jax import watched
from partax._jax.environment import read_environment_when_imported
from partax._libraries.equinox.on_import import accelerate_when_imported
from partax._store import command as store_command

# What each command that runs a script is called, its help, what is more to say of it, and its options: files to write.
_COMMANDS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    (
        "explain",
        "run a script, explain each trace as it comes, and report at the end what all has cost",
        ". Each trace is explained on the standard error, and at the end it has a report.",
        {"json": "write the report of the partax functions to this file, as JSON"},
    ),
    (
        "doctor",
        "run a script, and say of each program that it compiles why it costs what it costs, by line",
        ". At the end the programs that jax has compiled, the script's own and those of libraries, are on the standard "
        "error in the order of what each has cost, with what partax.doctor finds in them.",
        {"html": "write findings and the memory of each program to this file (partax[doctor])"},
    ),
    (
        "equinox",
        "run a script that imports equinox, and have it use partax",
        ", and has Equinox, and every library that imports it, use partax (partax.equinox.accelerate).",
        {},
    ),
)


def main(arguments: list[str]) -> None:
    """Runs the command that the arguments after `python -m partax` name."""
    parser = argparse.ArgumentParser(prog="python -m partax", description="Tools of partax.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, told, more, files in _COMMANDS:
        options = "".join(f"[--{file} FILE] " for file in files)
        usage = f"%(prog)s [-h] {options}(script.py | -m module) [argument ...]"
        description = f"Runs a Python script, or with -m a module, as `python` does{more}"
        command = commands.add_parser(name, usage=usage, help=told, description=description)
        for file, what in files.items():
            command.add_argument(f"--{file}", metavar="FILE", help=what)
        command.set_defaults(parser=command)
        command.add_argument("-m", action="store_true", dest="module", help="run a module by its name")
        command.add_argument("script", help="the script, or the module's name")
        command.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to it as they are")
    description = (
        "Lists the programs in a folder of partax.store: whose they are, when they were written or loaded last, "
    )
    description += "and what each has saved where it was loaded."
    about = "list the programs in a folder of partax.store, and drop some"
    store_command.add_arguments(commands.add_parser("store", help=about, description=description))
    given = parser.parse_args(arguments)
    if given.command == "store":
        store_command.run(given)
        return
    if not given.module and (os.path.isdir(given.script) or not os.path.exists(given.script)):
        given.parser.error(f"found no file {given.script!r}, expected a Python script")
    try:
        {"explain": _explain, "doctor": _doctor, "equinox": _equinox}[given.command](given)
    except BaseException as error:
        _hide_our_frames(error.__traceback__)
        raise


def _run(given: argparse.Namespace) -> None:
    """Runs a script as `python script.py` does, and leaves its variables in `__main__`, where its threads, its pickles
    and what it has registered to run at exit find them.
    """
    file = os.path.abspath(given.script)
    sys.argv = [given.script, *given.arguments]
    if given.module:  # for which `python -m` has put the working directory into the path
        spec = importlib.util.find_spec(given.script)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{given.script}.__main__")
        if spec is None:
            raise ImportError(f"No module named {given.script!r}")
        sys.argv[0] = str(spec.origin)
    else:
        spec = PathFinder.find_spec("__main__", [file])  # of a folder or an archive
        sys.path[0] = os.path.dirname(os.path.realpath(file)) if spec is None else file
    main = ModuleType("__main__") if spec is None else importlib.util.module_from_spec(spec)
    loader: Any = SourceFileLoader("__main__", file) if spec is None else spec.loader
    main.__dict__.update({"__file__": file} if spec is None else {}, __name__="__main__", __builtins__=builtins)
    sys.modules["__main__"] = main
    read_environment_when_imported()
    exec(loader.get_code(spec.name) if spec else loader.source_to_code(loader.get_data(file), file), main.__dict__)


def _hide_our_frames(trace: TracebackType | None) -> None:
    """Has Python show an exception of the script's without what has run it, and what watches jax."""
    told, shown, frames = sys.excepthook, None, list[TracebackType]()
    while trace is not None:
        frames += [trace] if trace.tb_frame.f_code.co_filename not in _OURS else []
        trace = trace.tb_next
    for it in reversed(frames):
        shown = TracebackType(shown, it.tb_frame, it.tb_lasti, it.tb_lineno)
    sys.excepthook = lambda kind, error, _: told(kind, error.with_traceback(shown), shown)


def _equinox(given: argparse.Namespace) -> None:
    accelerate_when_imported()
    _run(given)


def _explain(given: argparse.Namespace) -> None:
    accelerate_when_imported()
    explain()
    try:
        _run(given)
    finally:  # also of a script that fails or exits; then the exception goes on
        found = report()
        print("\npartax: what has been traced and compiled\n", file=sys.stderr)
        print(found, file=sys.stderr)
        if given.json is not None:
            with open(given.json, "w", encoding="utf-8") as file:
                file.write(found.to_json(indent=2) + "\n")


def _doctor(given: argparse.Namespace) -> None:
    from partax._doctor.script import Watch, diagnoses, print_programs, refuse_unwritable

    if given.html is not None:
        refuse_unwritable(given.html)
    watch, raised = Watch(), False
    try:
        _run(given)
    except BaseException as error:  # which goes on when all is told
        raised = not isinstance(error, SystemExit)
        raise
    finally:
        watch.end()
        found = diagnoses(watch)
        print_programs(watch, found, sys.stderr, raised)
        if given.html is not None:
            from partax._doctor.page import write_page  # it needs partax[doctor]

            write_page(given.html, found)


_OURS = __file__, watched.__file__, "<frozen runpy>"  # the last of which `python -m` runs by

if __name__ == "__main__":
    main(sys.argv[1:])
