"""The shipped surrogates, one a module: ``load(model, device) -> Surrogate``."""
