"""From a user's simulator to labelled draws: `Model`, `simulate`, the store, `Simulations` and its files.

It must not know networks, losses or log K.
"""
