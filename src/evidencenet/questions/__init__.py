"""One question a file, each built from `simulate`, `train` and `EvidenceNetwork` only.

Questions must not know each other.
"""
