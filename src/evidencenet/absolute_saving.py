"""Save an `Evidence` to one file, and load it again."""

import os

from evidencenet import storage
from evidencenet.absolute import Evidence
from evidencenet.models import Model
from evidencenet.reference import Component, Reference
from evidencenet.saving import described, example_of, fields_of, packed, parts_of, record, under, unpacked


def save(evidence: Evidence, path: str | os.PathLike[str]) -> None:
    """Write an evidence to one file: its network, and the reference if that was fitted."""
    if evidence.network is None:
        raise ValueError(
            f"the density of {evidence.name!r} is known: nothing was learned that a file could keep. Make it "
            "anew with absolute_evidence."
        )
    network, arrays = packed(evidence.network)
    arrays = {f"network/{name}": array for name, array in arrays.items()}
    fitted = isinstance(evidence.reference, Reference)
    if isinstance(evidence.reference, Reference):
        for i, part in enumerate(evidence.reference.components):
            arrays |= {f"reference/{i}/{key}": value for key, value in fields_of(part).items()}
    about = {
        "name": evidence.name,
        "network": network,
        "reference": None if fitted else evidence.reference.name,  # type: ignore[union-attr]
        "example": described(evidence.example),
        "draws": evidence.draws,
        "log_valid": evidence.log_valid,
        "log_valid_error": evidence.log_valid_error,
    }
    storage.write(path, "evidence", about, arrays)


def load(path: str | os.PathLike[str], reference: Model | None) -> Evidence:
    """Read what `save` wrote."""
    about, arrays = storage.read(path, "evidence")
    named = about["reference"]
    if named is not None and (reference is None or reference.name != named or reference.log_density is None):
        given = "none was given" if reference is None else f"got {reference.name!r}"
        raise ValueError(
            f"{path} was learned against the model {named!r}, whose log_density a file cannot hold, and "
            f"{given}. Pass it again: Evidence.load(path, reference=model)."
        )
    parts = parts_of(under(arrays, "reference"))
    fitted = Reference(tuple(record(Component, part) for part in parts))
    return Evidence(
        about["name"],
        unpacked(about["network"], under(arrays, "network"), None, None),
        fitted if named is None or reference is None else reference,
        example_of(about["example"]),
        about["draws"],
        about["log_valid"],
        about["log_valid_error"],
    )
