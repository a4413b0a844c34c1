"""What goes into the training process: this folder is put first on ``PYTHONPATH`` by ``dipstick run``.

Python finds two names here: ``sitecustomize``, which starts the probe and then runs the site's own, and
``dipstick_probe``, the probe itself. Everything else lives inside that package, so that no module of the
training code can be hidden by one of ours. Standard library only, Python 3.9 or newer, and no import of
dipstick: the training environment need not have it.

To keep the probe out of a process (a sandbox that runs model-written code, say) start it with
``DIPSTICK_DISABLE=1`` or without this folder on ``PYTHONPATH``; see docs/probe.md.
"""
