"""Draws and observations in files: arrays (npy, npz, HDF5, Zarr), tables (CSV, Parquet), and what they hold.

It must not know `Simulations`, which is built from what is read here.
"""
