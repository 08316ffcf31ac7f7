"""Guards the promise that nothing is published which the tests have not passed, by actions that nobody can exchange."""

import re
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
if not FILES:
    pytest.skip("a source distribution has no workflows", allow_module_level=True)
WORKFLOWS: dict[str, dict[Any, Any]] = {path.name: yaml.safe_load(path.read_text()) for path in FILES}
JOBS = [(file, name, job) for file, workflow in WORKFLOWS.items() for name, job in workflow["jobs"].items()]
STEPS: list[tuple[str, str, Any]] = [(file, name, step) for file, name, job in JOBS for step in job.get("steps", ())]


def test_actions_are_pinned_by_their_commit_and_say_which_version_that_is() -> None:
    used = [line for path in FILES for line in path.read_text().splitlines() if re.match(r"\s*(- )?uses:", line)]
    assert len(used) > 10
    for line in used:
        assert re.search(r"uses: (\./|[\w/.-]+@[0-9a-f]{40} # v\d+(\.\d+)*$)", line), line


def test_nobody_may_write_but_who_publishes() -> None:
    allowed = {"pages": {"pages", "id-token"}, "publish": {"id-token", "attestations"}}
    for file, workflow in WORKFLOWS.items():
        writes = {name for name, access in workflow["permissions"].items() if access != "read"}
        assert writes <= allowed.get(file.removesuffix(".yml"), set()), file
    for file, name, job in JOBS:
        writes = {entry for entry, access in job.get("permissions", {}).items() if access != "read"}
        assert writes <= allowed.get(name, set()), (file, name)
        assert job.get("timeout-minutes") or "uses" in job, (file, name)


def test_no_checkout_leaves_its_token_behind() -> None:
    checkouts = [step["with"] for _, _, step in STEPS if step.get("uses", "").startswith("actions/checkout@")]
    assert {entry["persist-credentials"] for entry in checkouts} == {False}


def test_what_is_published_has_passed_all_tests_and_the_check() -> None:
    publish = WORKFLOWS["wheels.yml"]["jobs"]
    needed = publish["publish"]["needs"]
    tests = [name for name in needed if publish[name].get("uses") == "./.github/workflows/ci.yml"]
    assert len(tests) == 1 and publish[tests[0]]["with"] == {"full": True}
    builds = [name for name in needed if name not in tests]
    for name in builds:
        commands = "\n".join(step.get("run", "") for step in publish[name]["steps"])
        assert ".ci/wheels" in commands or ".ci/check_wheel.py" in commands, name
    names = {
        step["with"]["name"] for name in builds for step in publish[name]["steps"] if "upload" in step.get("uses", "")
    }
    (pattern,) = [step["with"]["pattern"] for step in publish["publish"]["steps"] if "download" in step.get("uses", "")]
    assert pattern == "{wheels-*,sdist}" and all(entry == "sdist" or entry.startswith("wheels-") for entry in names)
    assert "check_wheel.py" in (ROOT / ".ci/wheels").read_text()
