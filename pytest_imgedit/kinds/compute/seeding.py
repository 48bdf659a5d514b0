"""One seed for every generator that an editor may draw from."""

import random
import sys


def seed_all(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch (on all devices) with `seed`, which is
    in [0, 2**63); skip libraries that are not imported yet.
    """
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def has_drawn(seed: int) -> bool:
    """Tell whether a global generator was drawn from, or a library with one was imported, since
    `seed_all(seed)`; reseed them all.
    """
    states = _states()
    seed_all(seed)
    return states != _states()


def _states() -> list[object]:
    """Return the states of the global generators of imported libraries; on GPUs, that of the
    current one.
    """
    states: list[object] = [random.getstate()]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *position = numpy.random.get_state()
        states += [kind, keys.tobytes(), position]
    torch = sys.modules.get("torch")
    if torch is not None:
        states.append(torch.get_rng_state().numpy().tobytes())
        if torch.cuda.is_initialized():
            states.append(torch.cuda.get_rng_state().numpy().tobytes())
    return states
