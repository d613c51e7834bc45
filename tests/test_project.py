# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The files around the code: in step with each other, licensed, and what the README promises is there."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from rxbook import notebooks, runs
from rxbook.plan import INPUTS, Plan

ROOT = runs.ROOT
BIN = Path(sys.executable).parent
SPDX = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause"
OF_CONDA = {"matplotlib-base": "matplotlib"}  # without Qt
OF_PIP = {"symbolic"}
"""Packages that conda-forge does not have."""
BROUGHT = {"PIL": "pillow", "yaml": "pyyaml", "IPython": "ipykernel", "traitlets": "ipywidgets"}
"""Packages that others cannot be without."""


def tracked(*patterns):
    """Files of the repository; of a copy without one, all files that are not made by tools."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", *patterns], capture_output=True, text=True
    )
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.split("\0") if name]
    rooms = ("lib", "tests", "benchmarks", "notebooks")
    return [path for room in rooms for pattern in patterns for path in (ROOT / room).rglob(pattern)]


# --- what is installed


def bounds(requirements):
    return dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement).groups() for requirement in requirements)


def test_conda_and_pip_install_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["name"] == project["name"]
    *listed, by_pip = environment["dependencies"]
    *not_of_conda, itself = by_pip["pip"]
    assert itself == "-e ." and set(bounds(not_of_conda)) == OF_PIP
    listed.remove("pip")
    conda = {OF_CONDA.get(name, name): bound for name, bound in bounds(listed + not_of_conda).items()}
    assert conda == bounds(project["dependencies"]) | {
        "python": project["requires-python"].removeprefix(">=")
    }


def test_what_the_code_imports_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = set(bounds(project["dependencies"]))
    optional = {name for extra in project["optional-dependencies"].values() for name in bounds(extra)}
    for path in tracked("lib/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            packages = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"rxbook"}
            assert {BROUGHT.get(name, name) for name in packages} <= declared | optional, path


def test_the_licence_is_named_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == SPDX.split(": ")[1]
    text = (ROOT / "LICENSE").read_text()
    assert "GNU GENERAL PUBLIC LICENSE" in text and "Redistribution and use" in text


def test_every_source_says_its_licence_in_its_first_lines():
    sources = tracked("*.py", "*.c", "*.h", "*.sh", "Makefile", ".ci/run")
    assert len(sources) > 40
    lacking = [path for path in sources if SPDX not in "\n".join(path.read_text().splitlines()[:2])]
    assert not lacking


# --- make


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("run", "rxbook run gro_on_off"),
        ("test", "-m pytest"),
        ("lab", "jupyter lab"),
        ("bench", "benchmarks/run.py"),
        ("lint", "ruff check"),
        ("doctor", "rxbook doctor"),
        ("clean", "rm -rf"),
    ],
)
def test_each_target_sets_itself_up(tmp_path, target, command):
    def dry(venv):
        done = subprocess.run(
            ["make", "-n", target, f"VENV={venv}"], cwd=ROOT, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    fresh = dry(tmp_path / "venv")
    assert command in fresh
    assert ("-m venv" in fresh and "pip install" in fresh) is (target != "clean")
    if target != "clean":
        (tmp_path / "there" / "bin").mkdir(parents=True)
        for name in ("bin/python", ".installed", ".installed-dev"):
            (tmp_path / "there" / name).write_text("")
        again = dry(tmp_path / "there")
        assert command in again and "pip install" not in again


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_an_old_python_is_refused_before_anything_is_made(tmp_path):
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["make", "doctor", f"VENV={tmp_path / 'venv'}", f"PYTHON={old}"],
        cwd=ROOT, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode != 0 and "Python 3.11 or newer is needed" in done.stdout
    assert not (tmp_path / "venv").exists()


def test_ci_runs_what_the_readme_says():
    script = (ROOT / ".ci" / "run").read_text()
    assert "make lint" in script and "make test" in script and os.access(ROOT / ".ci" / "run", os.X_OK)


# --- what is written about it


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_the_readme_leads_with_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    assert readme.index("make run") < readme.index("make test") < readme.index("## ")


def test_the_readme_leads_to_each_page():
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES[1:] if f"](docs/{page.name})" not in readme] == []


@EACH_PAGE
def test_what_a_page_names_is_there(page):
    text = page.read_text()
    for target in set(re.findall(r"(?:`| {4}|sudo )make (\w+)", text)):
        of_kernel = target in ("bzImage", "tinyconfig", "olddefconfig")
        assert of_kernel or re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert re.match(r"https?:", link) or (page.parent / link).exists(), link
    assert not re.search(r"^(TABLE|BENCH|WINDOWS)$", text, re.MULTILINE)
    for script in re.findall(r"`(benchmarks/\w+\.py|lib/\S+\.py)", text):
        assert (ROOT / script).exists() or page.stem == "extending", script


@EACH_PAGE
def test_every_parameter_and_command_of_a_page_is_one(page):
    from rxbook.cli import app

    text = page.read_text()
    known = {*Plan.model_fields, *INPUTS, *notebooks.declared("explore")}
    said = set(re.findall(r"--set \"?(\w+)=", text))
    if page.name == "README.md":  # pages quote other settings, too
        said |= set(re.findall(r"`(\w+)=[^`]*`", text))
    assert said - known == set()
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    commands |= {group.name for group in app.registered_groups}
    assert set(re.findall(r"(?:`|bin/|^ {4})rxbook (\w+)", text, re.MULTILINE)) <= commands


def test_git_ignores_what_is_measured():
    if not (ROOT / ".git").exists():
        pytest.skip("no git repository")
    assert [path.name for path in tracked("runs")] == ["README.md"]
    assert not tracked("*.pyc", ".venv", "*.egg-info")


def test_the_hook_refuses_notebooks_with_outputs_by_what_is_staged(tmp_path):
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@example.com", "-C", tmp_path]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / ".git/hooks/pre-commit").symlink_to(ROOT / ".ci/pre-commit")
    clean = json.loads((ROOT / "notebooks/gro_on_off.ipynb").read_text())
    run = json.loads(json.dumps(clean))
    cell = next(cell for cell in run["cells"] if cell["cell_type"] == "code")
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["2.70 Mpps"]}]

    def commit(notebook, source):
        (tmp_path / "x.ipynb").write_text(json.dumps(notebook, indent=1) + "\n")
        (tmp_path / "x.py").write_text(source)
        subprocess.run([*git, "add", "-A"], check=True)
        return subprocess.run(
            [*git, "commit", "-qm", "x"],
            capture_output=True,
            text=True,
            env=os.environ | {"VENV": sys.prefix},
        )

    refused = commit(run, "x = 1\n")
    assert refused.returncode and "x.ipynb has outputs" in refused.stderr and "x.py" not in refused.stderr
    refused = commit(clean, "x=1\n")
    assert (
        refused.returncode
        and "x.py is not formatted" in refused.stderr
        and "has outputs" not in refused.stderr
    )
    assert commit(clean, "x = 1\n").returncode == 0
