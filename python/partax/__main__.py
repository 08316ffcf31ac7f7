"""The commands that run a script unchanged: `python -m partax explain script.py args...` explains what it traces and
compiles, `python -m partax doctor script.py args...` reports which lines make its programs slow, and
`python -m partax equinox script.py args...` makes Equinox use partax. `python -m partax store DIRECTORY` lists the
stored programs of a directory.
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
from partax._store import command as store_command

# Of each command that runs a script: its name, its help, the rest of its description, and the files it can write.
_COMMANDS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    (
        "explain",
        "run a script, explain each trace when it happens, and report the costs at the end",
        ". Explanations and the report go to the standard error.",
        {"json": "also write the report to this file, as JSON"},
    ),
    (
        "doctor",
        "run a script and report, line by line, what makes its compiled programs slow",
        ". At the end the compiled programs, of the script and of libraries, are listed on the standard error, the "
        "most expensive first, with the findings of partax.doctor.",
        {"html": "also write the findings to this file (needs partax[doctor])"},
    ),
    (
        "equinox",
        "run a script and make Equinox use partax",
        ". Equinox, and every library that imports it, uses partax (partax.equinox.accelerate).",
        {},
    ),
)


def main(arguments: list[str]) -> None:
    """Run the command line `python -m partax ARGUMENTS`."""
    parser = argparse.ArgumentParser(prog="python -m partax", description="Tools of partax.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, summary, details, files in _COMMANDS:
        file_options = "".join(f"[--{file} FILE] " for file in files)
        usage = f"%(prog)s [-h] {file_options}(script.py | -m module) [argument ...]"
        description = f"Runs a Python script, or with -m a module, as `python` does{details}"
        command = commands.add_parser(name, usage=usage, help=summary, description=description)
        for file, file_help in files.items():
            command.add_argument(f"--{file}", metavar="FILE", help=file_help)
        command.set_defaults(parser=command)
        command.add_argument("-m", action="store_true", dest="module", help="run a module by its name")
        command.add_argument("script", help="the script, or the module's name")
        command.add_argument("arguments", nargs=argparse.REMAINDER, help="passed to it as they are")
    store_parser = commands.add_parser(
        "store",
        help="list or delete the programs in a directory of partax.store",
        description="List the programs in a directory of partax.store: their functions, the times of the last write "
        "or load, and the seconds that each load has saved.",
    )
    store_command.add_arguments(store_parser)
    options = parser.parse_args(arguments)
    if options.command == "store":
        store_command.run(options)
        return
    if not options.module and (os.path.isdir(options.script) or not os.path.exists(options.script)):
        options.parser.error(f"found no file {options.script!r}, expected a Python script")
    try:
        {"explain": _explain, "doctor": _doctor, "equinox": _equinox}[options.command](options)
    except BaseException as error:
        _hide_our_frames(error.__traceback__)
        raise


def _run(options: argparse.Namespace) -> None:
    """Run a script as `python script.py` does. Its variables stay in `__main__`, where threads, pickles and exit
    handlers look them up.
    """
    file = os.path.abspath(options.script)
    sys.argv = [options.script, *options.arguments]
    if options.module:  # `python -m` has put the working directory into the path
        spec = importlib.util.find_spec(options.script)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{options.script}.__main__")
        if spec is None:
            raise ImportError(f"No module named {options.script!r}")
        sys.argv[0] = str(spec.origin)
    else:
        spec = PathFinder.find_spec("__main__", [file])  # a directory or an archive
        sys.path[0] = os.path.dirname(os.path.realpath(file)) if spec is None else file
    main = ModuleType("__main__") if spec is None else importlib.util.module_from_spec(spec)
    loader: Any = SourceFileLoader("__main__", file) if spec is None else spec.loader
    main.__dict__.update({"__file__": file} if spec is None else {}, __name__="__main__", __builtins__=builtins)
    sys.modules["__main__"] = main
    read_environment_when_imported()
    exec(loader.get_code(spec.name) if spec else loader.source_to_code(loader.get_data(file), file), main.__dict__)


def _hide_our_frames(trace: TracebackType | None) -> None:
    """Leave the frames of this file and of the watcher out of the traceback of the script's exception."""
    print_error, shortened, frames = sys.excepthook, None, list[TracebackType]()
    while trace is not None:
        frames += [trace] if trace.tb_frame.f_code.co_filename not in _OURS else []
        trace = trace.tb_next
    for frame in reversed(frames):
        shortened = TracebackType(shortened, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    sys.excepthook = lambda kind, error, _: print_error(kind, error.with_traceback(shortened), shortened)


def _equinox(options: argparse.Namespace) -> None:
    from partax.equinox import accelerate

    accelerate()
    _run(options)


def _explain(options: argparse.Namespace) -> None:
    try:
        from partax.equinox import accelerate
    except ImportError:  # no Equinox
        pass
    else:
        accelerate()
    explain()
    try:
        _run(options)
    finally:  # also if the script fails or exits
        costs = report()
        print("\npartax: what has been traced and compiled\n", file=sys.stderr)
        print(costs, file=sys.stderr)
        if options.json is not None:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(costs.to_json(indent=2) + "\n")


def _doctor(options: argparse.Namespace) -> None:
    from partax._doctor.script import Watch, diagnoses, print_programs, refuse_unwritable

    if options.html is not None:
        refuse_unwritable(options.html)
    watch, raised = Watch(), False
    try:
        _run(options)
    except BaseException as error:  # raised again after the report
        raised = not isinstance(error, SystemExit)
        raise
    finally:
        watch.end()
        findings = diagnoses(watch)
        print_programs(watch, findings, sys.stderr, raised)
        if options.html is not None:
            from partax._doctor.page import write_page  # needs partax[doctor]

            write_page(options.html, findings)


_OURS = __file__, watched.__file__, "<frozen runpy>"  # runpy is what `python -m` runs

if __name__ == "__main__":
    main(sys.argv[1:])
