"""GRPO on a language model that edits crystals, scored by GNN workers that share its device.

A public analogue of the pipeline that dipstick was born from, whose own system is unpublished; see docs/crystal_rl.md.

    grammar -> edits -> rules -> relax -> reward       one completion to one score; pure functions of their inputs
    structures, surrogate, references                  what they work on: shipped cells, a pretrained potential
    scoring                                            all of it for one task: what a worker runs

Importing this is cheap: ASE and torch are loaded by the first call.
"""
