"""One seed for every generator that an editor may draw from."""

import random
import sys


def seed_all(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch (on all devices) with `seed` in [0,
    2**63), except of libraries that are not imported yet.
    """
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)


def has_drawn(seed: int) -> bool:
    """Tell whether a global generator was drawn from since `seed_all(seed)`; reseed them all."""
    states = _states()
    seed_all(seed)
    return states != _states()


def _states() -> list[object]:
    states: list[object] = [random.getstate()]
    if (numpy := sys.modules.get("numpy")) is not None:
        kind, keys, *position = numpy.random.get_state()
        states += [kind, keys.tobytes(), position]
    if (torch := sys.modules.get("torch")) is not None:
        states.append(torch.get_rng_state().numpy().tobytes())
        if torch.cuda.is_initialized():
            states.append(torch.cuda.get_rng_state().numpy().tobytes())
    return states
