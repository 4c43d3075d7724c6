"""Questions beyond "which model, by what odds?": one question in each file.

Each is built from `simulate`, `train`, `validate` and `EvidenceNetwork`. A question must not use another one
(only `design` uses `forecast`), and nothing here draws figures or parses commands.
"""
