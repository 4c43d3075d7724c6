"""How many processors there are to work with."""

import os


def processors() -> int:
    """Return how many processors this process may use; fewer than the machine has, if it is held to some.

    Batch systems give a job some processors of a large machine, and so does ``taskset``.

    Examples
    --------
    >>> processors() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
