"""Figures that draw one record on one axis, and the report: one HTML page that needs nothing else.

It must not know how the numbers came about.
"""
