"""The GPU list parser, visibility and grouping."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.workers import gpus
from pytest_imgedit.workers.hardware import Hardware


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0", [0]),
        ("0-5", [0, 1, 2, 3, 4, 5]),
        ("0,2", [0, 2]),
        ("0-3,6", [0, 1, 2, 3, 6]),
        ("3, 1", [3, 1]),
    ],
)
def test_lists(text, numbers):
    assert gpus.parse_gpus(text) == numbers


@pytest.mark.parametrize(
    "text",
    [
        "5-0",
        "0,0",
        "a-b",
        "",
        "0,,1",
        "0-",
        "-1",
        "0-2-4",
        "０",
        "1_0",
        "0-99999999999",
        "1.0",
        "+1",
        "0-3,2",
    ],
)
def test_bad_lists_are_usage_errors(text):
    with pytest.raises(UsageError, match=r"^--imgedit-gpus="):
        gpus.parse_gpus(text)


@given(st.text(max_size=12))
def test_any_text_gives_distinct_numbers_or_a_usage_error(text):
    try:
        numbers = gpus.parse_gpus(text)
    except UsageError:
        return
    assert numbers
    assert len(set(numbers)) == len(numbers)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=9, unique=True))
def test_a_written_list_is_read_back(numbers):
    assert gpus.parse_gpus(",".join(map(str, numbers))) == numbers


@pytest.fixture(autouse=True)
def closed_driver():
    """No test sees a driver that another one has opened."""
    gpus._driver.cache_clear()
    yield
    gpus._driver.cache_clear()


def names(text):
    return gpus.find_gpus(text)[0]


def test_numbers_count_over_the_visible_gpus(driver, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,GPU-abc,0,-1,7")
    assert names("auto") == ["1", "GPU-abc", "0"]
    assert names("1-2") == ["GPU-abc", "0"]
    assert names("none") == []
    with pytest.raises(UsageError, match="no GPU 3, this machine shows GPUs 0-2"):
        names("0,3")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert names("auto") == ["0", "1"]


def test_the_driver_is_opened_once(driver, monkeypatch):
    calls = []
    monkeypatch.setattr(driver, "nvmlInit", lambda: calls.append("open"))
    assert Hardware.here("0-1").has_gpus
    assert Hardware.here("1").has_gpus
    with gpus.BusyMeter(["0"], lambda: True) as meter:
        wait_until(lambda: meter.share == 0.25)
    assert calls == ["open"]


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch):
    import pynvml

    def fails():
        raise pynvml.NVMLError_LibraryNotFound

    monkeypatch.setattr(pynvml, "nvmlInit", fails)
    assert not Hardware.here("auto").has_gpus
    with pytest.raises(
        UsageError, match="no GPU 0, this machine shows no GPU; expected auto or none"
    ):
        Hardware.here("0")


def test_groups_come_out_even_or_are_refused():
    assert gpus.group_gpus(["0", "1", "2", "3"], 2, "--k") == [("0", "1"), ("2", "3")]
    assert gpus.group_gpus([], 1, "--k") == []
    with pytest.raises(UsageError, match="--k=2: 3 GPUs, expected a multiple of 2"):
        gpus.group_gpus(["0", "1", "2"], 2, "--k")


@pytest.fixture
def driver(monkeypatch):
    """A driver that shows two GPUs of 80 GiB, the second with 30 GiB free and a process on it."""
    import pynvml

    free = {0: 79, 1: 30}
    pids = {0: [], 1: [SimpleNamespace(pid=4242)]}
    memory = {
        n: SimpleNamespace(free=free[n] * 2**30, total=80 * 2**30, used=(80 - free[n]) * 2**30)
        for n in free
    }
    stand_ins = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=25),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetHandleByUUID": lambda name: {"GPU-abc": 1}[name],
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetName": lambda handle: "X",
        "nvmlDeviceGetMemoryInfo": memory.__getitem__,
        "nvmlDeviceGetComputeRunningProcesses": pids.__getitem__,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(pynvml, name, stand_in)
    return pynvml


def known(text):
    return gpus.find_gpus(text)[1]


def test_busy_gpu_is_refused_with_who_holds_it(driver, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus.require_memory(known("0"), 70 * 2**30, "x")
    gpus.require_memory(known("0-1"), 100 * 2**30, "x")
    with pytest.raises(
        UsageError,
        match=r"GPU 1: 30\.0 of 80\.0 GiB free \(held by processes 4242\), expected at least 57\.7 GiB for .* x",
    ):
        gpus.require_memory(known("1"), int(57.7 * 2**30), "x")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-abc")
    with pytest.raises(UsageError, match="GPU GPU-abc: 30"):
        gpus.require_memory(known("0"), 58 * 2**30, "x")


def test_gpu_that_does_not_tell_its_memory_is_not_described(driver, monkeypatch):
    tell = driver.nvmlDeviceGetMemoryInfo

    def unsupported(handle):
        if handle == driver.nvmlDeviceGetHandleByIndex(0):
            raise driver.NVMLError_NotSupported
        return tell(handle)

    monkeypatch.setattr(driver, "nvmlDeviceGetMemoryInfo", unsupported)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [gpu.name for gpu in known("0-1")] == ["1"]
