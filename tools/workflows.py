"""Runs the steps of the workflows as far as they need no host: `python -m tools.workflows
[WORKFLOW[.JOB] …] [--env NAME=VALUE …]`.

Each job gets a clean clone of HEAD, and where it sets up Python an environment of its own. Its
`run` steps are executed by `bash -e`, as GitHub does. A step that uses an action and a version of
Python that is not installed are named and left out. `--env` replaces what a workflow sets, such as
the index of PyTorch: `--env TORCH=torch==2.13.0`. Without a value it removes that.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pytest_imgedit.core.versions import __version__

ROOT = Path(__file__).parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
_MATRIX = re.compile(r"\$\{\{ matrix\.(\w+) \}\}")


@dataclass(frozen=True)
class Job:
    """A job of a workflow, for one choice of its matrix."""

    name: str
    steps: list[dict[str, Any]]
    env: Mapping[str, str]
    matrix: Mapping[str, str]

    def fill(self, text: str) -> str:
        """Replace `${{ matrix.NAME }}` by the choice of this job."""
        return _MATRIX.sub(lambda place: self.matrix[place[1]], text)


def jobs(workflow: Path) -> Iterator[Job]:
    """Yield the jobs of a workflow file, each for every choice of its matrix."""
    document = yaml.safe_load(workflow.read_text("utf-8"))
    for name, job in document["jobs"].items():
        axes = job.get("strategy", {}).get("matrix", {})
        env = {**document.get("env", {}), **job.get("env", {})}
        for values in itertools.product(*axes.values()):
            matrix = dict(zip(axes, values, strict=True))
            full_name = ".".join([workflow.stem, name, *matrix.values()])
            yield Job(name=full_name, steps=job["steps"], env=env, matrix=matrix)


def prepare(job: Job, step: Mapping[str, Any], folder: Path) -> str | None:
    """Stand in for an action: make the environment of `setup-python`.

    Returns why the job cannot go on, or `None`.
    """
    print(f"-- {step['uses']}: of the host", flush=True)
    if not step["uses"].startswith("actions/setup-python@"):
        return None
    version = job.fill(step["with"]["python-version"])
    python = shutil.which(f"python{version}")
    # a launcher may be there for a version that is not
    if python is None or subprocess.run([python, "--version"], capture_output=True).returncode:
        return f"Python {version} is not installed"
    subprocess.run([python, "-m", "venv", folder / "python"], check=True)
    return None


def execute(job: Job, replaced: Mapping[str, str]) -> str:
    """Run the steps of a job, and return what became of it in a word or two."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)  # as on a host: some tests run as another user
        subprocess.run(["git", "clone", "--quiet", ROOT, folder / "clone"], check=True)
        path = os.pathsep.join((str(folder / "python" / "bin"), os.environ["PATH"]))
        inherited = {name: os.environ[name] for name in os.environ if name != "VIRTUAL_ENV"}
        surroundings = {
            "PATH": path,
            "CI": "true",
            "GITHUB_REF_NAME": f"v{__version__}",
            "RUNNER_TEMP": str(folder),
        }
        for step in job.steps:
            if "run" not in step:
                reason = prepare(job, step, folder)
                if reason is not None:
                    return f"not run: {reason}"
                continue
            print(f"-- {step['run'].strip()}", flush=True)
            variables = {**inherited, **surroundings, **job.env, **step.get("env", {}), **replaced}
            env = {name: value for name, value in variables.items() if value}
            script = folder / "step.sh"
            script.write_text(job.fill(step["run"]), "utf-8")
            done = subprocess.run(["bash", "-e", script], cwd=folder / "clone", env=env)
            if done.returncode != 0:
                return f"FAILED: exit code {done.returncode} of {step['run'].strip()!r}"
    return "passed"


def is_selected(job: Job, names: list[str]) -> bool:
    """Tell whether one of the names is the job's, or begins it; without names, all jobs are."""
    return not names or any(f"{job.name}.".startswith(f"{name}.") for name in names)


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="WORKFLOW[.JOB]")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    replaced = dict(text.split("=", 1) for text in arguments.env)
    known = [job for path in sorted(WORKFLOWS.glob("*.yml")) for job in jobs(path)]
    outcomes = []
    for job in known:
        if is_selected(job, arguments.names):
            print(f"== {job.name}", flush=True)
            before = time.monotonic()
            outcome = execute(job, replaced)
            outcomes.append(f"{time.monotonic() - before:5.0f} s  {job.name}: {outcome}")
    print("\n".join(outcomes))
    return 1 if not outcomes or any("FAILED" in outcome for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
