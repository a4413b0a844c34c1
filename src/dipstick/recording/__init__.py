"""The recording on disk, the product's contract: written once, read by every later stage.

``schema`` names tables and columns, ``writer`` and ``reader`` are the two ways in and out; ``clean`` and
``order`` say what happens to bad rows on the way. Import the modules: this package loads nothing by itself.
"""
