"""Draws that a model makes only rarely, and networks that are validated by them.

It steers the random numbers of a simulator. It must not know figures.
"""
