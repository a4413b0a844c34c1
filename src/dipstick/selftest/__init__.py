"""Synthetic runs with planted truth, written as recordings and put through the whole product.

What is planted must be found, what is not must not be: a tool that always finds something is as useless as one
that never does. ``dipstick selftest`` prints the confusion table.
"""
