"""A run that is cut off fails in JUnit, too."""

from __future__ import annotations

import signal
import xml.etree.ElementTree as ElementTree

import pytest


@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["plain", "xdist"])
@pytest.mark.full
def test_an_interrupted_run_is_a_failing_case(bench, more):
    slow = ("--imgedit-editor=fakes:Slow", "--imgedit-set=editor.delay=0.5")
    process = bench.start(*slow, "--junitxml=junit.xml", *more)
    bench.wait_for(lambda: bench.stored_edits() > 0)
    process.send_signal(signal.SIGINT)
    output = bench.finish(process)
    assert process.returncode == 2, output
    cases = ElementTree.parse(bench.path / "junit.xml").iter("testcase")
    failed = {
        f"{case.get('classname')}::{case.get('name')}": case.find("failure") for case in cases
    }
    assert "INCOMPLETE: stopped by the user" in failed["imgedit.run::complete"].get("message")
    assert "imgedit: INCOMPLETE: stopped by the user; " in output
