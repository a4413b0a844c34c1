"""List the starting structures, or make them anew.

Without options: every shipped crystal whose name contains one of the given words. --generate relaxes all cells
again with a surrogate (an hour on one CPU core) and writes them to one file; --references does the same with the
elements' own crystals, to which formation energies refer. Both need pymatgen and no network.
"""

from __future__ import annotations

from crystal_rl.cli.common import add_surrogate, check_new, need, table
from dipstick.cli.options import positive
from dipstick.cli.output import answer
from dipstick.errors import EXIT_ANSWERED, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from crystal_rl.structures import Crystal
    from dipstick.cli.output import Talk

NAME = "structures"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what the verb takes."""
    parser.add_argument(
        "words", metavar="WORD", nargs="*", help="list those whose name contains one; none: all"
    )
    parser.add_argument("--generate", metavar="FILE", help="relax every cell anew, write extended XYZ")
    parser.add_argument("--references", metavar="FILE", help="relax the elements' crystals, write JSON")
    parser.add_argument("--limit", metavar="N", type=positive, help="with --generate: only the first N cells")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    add_surrogate(parser)


def run(args: Namespace, talk: Talk) -> int:
    """List or make."""
    need()
    if args.generate and args.references:
        raise UsageError("--generate and --references are two jobs", fix="references first, then structures")
    if args.references or args.generate:
        check_new(args.references or args.generate, force=args.force)
        return _references(args, talk) if args.references else _generate(args, talk)
    from crystal_rl.structures import shipped  # noqa: PLC0415 - loads ASE

    found = [c for c in shipped() if not args.words or any(word in c.id for word in args.words)]
    if not found:
        raise UsageError(f"no structure has {' or '.join(args.words)} in its name")
    answer(_json(found) if args.json else table([_HEAD, *map(_row, found)]))
    return EXIT_ANSWERED


_HEAD = ("id", "formula", "atoms", "g/cm³", "eV/atom above the elements")


def _row(crystal: Crystal) -> tuple[str, ...]:
    from crystal_rl.structures import density_of  # noqa: PLC0415 - loads ASE

    energy = "-" if crystal.formation_energy is None else f"{crystal.formation_energy:.3f}"
    atoms = str(len(crystal.structure.numbers))
    return (crystal.id, crystal.formula, atoms, f"{density_of(crystal.structure):.3f}", energy)


def _json(crystals: Sequence[Crystal]) -> str:
    import dataclasses  # noqa: PLC0415 - --help stays light
    import json  # noqa: PLC0415 - --help stays light

    return json.dumps(
        {"schema_version": 1, "structures": [dataclasses.asdict(c) for c in crystals]}, indent=2
    )


def _generate(args: Namespace, talk: Talk) -> int:
    from pathlib import Path  # noqa: PLC0415 - --help stays light

    from crystal_rl.generate import grown, seedlings  # noqa: PLC0415 - loads ASE
    from crystal_rl.structures import written  # noqa: PLC0415 - loads ASE
    from crystal_rl.surrogate import load_surrogate  # noqa: PLC0415 - loads ASE

    surrogate = load_surrogate(args.surrogate, args.device)
    cells = seedlings(surrogate.references)[: args.limit]
    crystals = []
    for number, cell in enumerate(cells, start=1):
        crystal = grown(cell, surrogate)
        talk.say(f"[{number}/{len(cells)}] {cell.id}{'' if crystal else ': left out'}")
        crystals += [crystal] if crystal else []
    Path(args.generate).write_text(written(crystals), encoding="utf-8")
    talk.say(f"wrote {args.generate}: {len(crystals)} of {len(cells)} cells")
    return EXIT_ANSWERED


def _references(args: Namespace, talk: Talk) -> int:
    import json  # noqa: PLC0415 - --help stays light
    from pathlib import Path  # noqa: PLC0415 - --help stays light

    from crystal_rl.references import compute  # noqa: PLC0415 - --help stays light
    from crystal_rl.surrogate import load_surrogate  # noqa: PLC0415 - loads ASE

    surrogate = load_surrogate(args.surrogate, args.device)
    energies: dict[str, float] = {}
    for symbol, energy in compute(surrogate):
        energies[symbol] = energy
        talk.say(f"{symbol} {energy:.4f} eV/atom")
    text = json.dumps({surrogate.model: energies}, indent=1)
    Path(args.references).write_text(f"{text}\n", encoding="utf-8")
    return EXIT_ANSWERED
