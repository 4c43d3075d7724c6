"""What every other package uses: arrays and dicts of arrays, wording of numbers, progress, warnings, files.

It knows nothing about models, networks or log K.
"""
