"""`Devices`: the processors that members are placed on, one after the other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from evidencenet.training.compiled import compiled


@dataclass(frozen=True)
class Devices:
    """The devices of an ensemble: member i is on device i modulo their number.

    A CPU is one device, whatever its cores; then nothing is placed anywhere, and JAX's default holds.

    Parameters
    ----------
    devices
        As JAX lists them; None is JAX's default.
    """

    devices: tuple[Any, ...]

    @staticmethod
    def for_members(members: int) -> "Devices":
        """Return the devices of this process, at most one a member; or the one that the user chose."""
        found = jax.local_devices()[:members]
        if len(found) == 1 or jax.config.values["jax_default_device"] is not None:
            return Devices((None,))
        return Devices(tuple(found))

    def __len__(self) -> int:
        return len(self.devices)

    def place_of(self, member: int) -> int:
        """Return which of the devices a member is on, by its place in the list."""
        return member % len(self.devices)

    def call(self, place: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function so that the arrays that it makes are on a device."""
        with jax.default_device(self.devices[place]):
            return function(*arguments)

    def copies(self, tree: Any) -> tuple[Any, ...]:
        """Return a copy of the arrays on each device."""
        return tuple(jax.device_put(tree, device) for device in self.devices)

    def compiled(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, ...]:
        """Compile a function for each device; see `evidencenet.training.compiled`."""
        return tuple(compiled(function, *arguments, device=device, **options) for device in self.devices)
