"""Bayesian model comparison from simulations alone."""
