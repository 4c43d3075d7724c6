"""Notice that a process was forked after JAX was used: then JAX would wait for ever."""

import os

# The process that first used JAX; filled at the first use. A child made by `os.fork` finds its parent here.
_users: set[int] = set()


def check_not_forked() -> None:
    """Raise if JAX was used in the parent of this process, before it was forked.

    JAX has threads, which a fork does not copy: what waits for them in the child never ends.

    Raises
    ------
    RuntimeError
        The message says what to do instead.
    """
    process = os.getpid()
    if _users and process not in _users:
        raise RuntimeError(
            "this process was made by os.fork after a network was used, and JAX does not work in it. Start "
            'processes with multiprocessing.get_context("spawn"), or use the network only in the children. A '
            'pool is then ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")).'
        )
    _users.add(process)
