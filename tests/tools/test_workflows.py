"""The workflows: pinned, with the least permissions, and runnable step by step."""

from __future__ import annotations

import os
import re

import pytest
import yaml

from tools.workflows import WORKFLOWS, Job, execute, is_selected, jobs

FILES = sorted(WORKFLOWS.glob("*.yml"))
ALL_JOBS = [job for path in FILES for job in jobs(path)]
#: Actions whose commit could not be read.
BY_TAG = {"pypa/gh-action-pypi-publish@release/v1"}


def make_job(*steps, **fields):
    return Job(name="tests.job", steps=list(steps), **{"env": {}, "matrix": {}, **fields})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit(path):
    used = re.findall(r"uses: (\S+)(?: # (v[\d.]+))?$", path.read_text(), re.MULTILINE)
    assert used
    for action, version in used:
        if action not in BY_TAG:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
            assert version, f"{action}: name the version in a comment"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_jobs_may_read_alone_and_only_the_publishing_one_gets_a_token(path):
    document = yaml.safe_load(path.read_text())
    assert document["permissions"] == {"contents": "read"}
    own = {
        name: job["permissions"] for name, job in document["jobs"].items() if "permissions" in job
    }
    assert own == ({"publish": {"id-token": "write"}} if path.stem == "release" else {})


@pytest.mark.parametrize("job", ALL_JOBS, ids=lambda job: job.name)
def test_every_job_has_a_limit_and_keeps_no_credentials(job):
    document = yaml.safe_load((WORKFLOWS / f"{job.name.split('.')[0]}.yml").read_text())
    assert document["jobs"][job.name.split(".")[1]]["timeout-minutes"] <= 180
    for step in job.steps:
        if "actions/checkout@" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_jobs_are_selected_by_workflow_and_job():
    names = [job.name for job in ALL_JOBS if is_selected(job, ["tests.quick", "release"])]
    assert names[0].startswith("release.build")
    assert {name.rsplit(".", 2)[0] for name in names if "quick" in name} == {"tests.quick"}
    assert len([name for name in names if "quick" in name]) == 4


def test_steps_see_their_matrix_and_variables(capfd):
    job = make_job(
        {"run": 'echo "${{ matrix.python }} $A $B $C ${D-removed}"', "env": {"C": "of the step"}},
        env={"A": "of the job", "B": "of the job", "D": "of the job"},
        matrix={"python": "3.11"},
    )
    assert execute(job, {"B": "replaced", "D": ""}) == "passed"
    assert "3.11 of the job replaced of the step removed" in capfd.readouterr().out


def test_the_first_step_that_fails_ends_the_job(capfd):
    job = make_job({"run": "test -f README.md\nfalse\necho on"}, {"run": "echo later"})
    assert execute(job, {}).startswith("FAILED: exit code 1 of ")
    assert "later\n" not in capfd.readouterr().out.replace("echo later", "")


@pytest.mark.parametrize("has_launcher", [False, True])
@pytest.mark.everyday
def test_a_version_of_python_that_is_not_installed_is_said(tmp_path, monkeypatch, has_launcher):
    if has_launcher:
        launcher = tmp_path / "python9.9"
        launcher.write_text("#!/bin/sh\nexit 127\n")
        launcher.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    step = {"uses": "actions/setup-python@x", "with": {"python-version": "9.9"}}
    assert execute(make_job(step), {}) == "not run: Python 9.9 is not installed"
