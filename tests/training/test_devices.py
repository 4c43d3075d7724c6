"""Members are placed on the devices that there are, and are the same networks on each."""

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

PROGRAM = """
import jax
import numpy as np
import evidencenet as en
from evidencenet import networks

seen = {}

def augment(rng, x):
    # Arrays of the members have 13 rows or columns, and no other arrays do.
    for array in jax.live_arrays():
        if 13 in array.shape:
            for device in array.devices():
                seen[str(device)] = seen.get(str(device), 0) + 1
    return x

problem = en.problems.mean_test(size=5)
sims = en.simulate(problem.models, 2_000, seed=1, progress=False)
options = {"members": 4, "network": networks.Dense(width=13), "recipe": en.Recipe(epochs=2)}
options |= {"baseline": False, "learn_error": False, "seed": 2, "progress": False}
net = en.train(sims, augment=augment, **options)
fresh = en.train(models=problem.models, draws=2_000, **options)
log_k = [each.members(np.asarray(sims.x)[:200]).tolist() for each in (net, fresh)]
found = {"devices": len(jax.devices()), "seen": seen, "log_k": log_k}
"""


def trained_here() -> Any:
    names: dict[str, Any] = {}
    exec(PROGRAM, names)
    return names["found"]


def trained_on(devices: int) -> Any:
    environment = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    environment["JAX_PLATFORMS"] = "cpu"
    program = PROGRAM + "\nimport json, sys\njson.dump(found, sys.stdout)\n"
    finished = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_members_are_placed_on_all_devices() -> None:
    one, four = trained_here(), trained_on(4)
    assert (one["devices"], four["devices"]) == (1, 4)
    assert len(one["seen"]) == 1
    # Every device holds a member, and all hold about as much.
    assert len(four["seen"]) == 4
    assert min(four["seen"].values()) > 0.5 * max(four["seen"].values())
    log_k = np.array(one["log_k"])
    # Members differ from each other by far more.
    assert np.array(four["log_k"]) == pytest.approx(log_k, abs=1e-5)
    for members in log_k:
        assert np.abs(members[0] - members[1]).max() > 1e-2
