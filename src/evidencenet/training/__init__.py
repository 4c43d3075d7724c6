"""From draws to trained networks: split, inputs, baseline, batches, recipe, loop, search, checkpoint.

It must not know what the outputs mean: log K, its error and the validated range belong to `estimator`.
"""
