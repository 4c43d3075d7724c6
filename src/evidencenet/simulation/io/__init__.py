"""Draws and observations in files: arrays (npy, npz, HDF5, Zarr) and tables (CSV, Parquet).

`draws` is the way in; `containers` and `tables` choose the reader by the suffix, and each kind of file has
one. What they do must not depend on `Simulations`, which is built from what is read here.
"""
