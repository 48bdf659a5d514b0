"""The first question in a session of pytest: once, before the first edit."""

import pytest
from api_server import api_server, error

MISSING = error(404, "The model `m` does not exist.", code="model_not_found")


@pytest.fixture
def server():
    with api_server(lambda fields: MISSING) as server:
        server.models = ("m2",)
        yield server


@pytest.mark.parametrize("workers", [(), ("-n2",)])
def test_wrong_model_ends_the_session_after_one_question(bench, server, workers):
    model = f"--imgedit-judge=openai:{server.url}#m"
    options = ("--imgedit-suite=scenes", "--imgedit-limit=1", "--imgedit-editor=oracle")
    result = bench.run(*options, model, *workers)
    assert result.ret == 4
    (line,) = [line for line in result.errlines if "has no model" in line]
    assert line.endswith("(404: The model `m` does not exist.), expected one of 'm2'")
    assert len(server.asked) == 1
    assert bench.stored_edits() == 0
