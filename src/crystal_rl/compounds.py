"""The compounds that starting structures are made of, family by family; lattice constants follow from radii."""

# ruff: noqa: SIM905 - lists of formulas read better as words
from __future__ import annotations

ROCKSALT = tuple("LiF LiCl NaF NaCl NaBr KF KCl KBr RbCl MgO CaO SrO BaO MgS CaS MnO NiO TiN VN TiC".split())
ZINCBLENDE = tuple("ZnS ZnSe GaAs GaP InP AlAs SiC CdTe".split())
WURTZITE = tuple("ZnO GaN AlN CdS".split())
CESIUM_CHLORIDE = tuple("CsCl CsBr CsI NiAl FeAl CoAl CuZn FeTi AgMg TlCl".split())
# cation and anion of AX2; in the last three the roles are swapped (antifluorite)
FLUORITE = tuple("Ca-F Sr-F Ba-F Zr-O Hf-O O-Li O-Na Si-Mg".split())
PEROVSKITE = tuple(
    f"{a}-{b}-{x}"
    for a_sites, b_sites, x_sites in (
        ("Ca Sr Ba", "Ti Zr Hf Sn Mn Ge", "O"),
        ("Na K Rb", "Nb Ta", "O"),
        ("Y", "Al Sc Cr Fe Co", "O"),
        ("K Rb Cs", "Mg Ca Zn Mn Ni", "F"),
        ("Cs", "Pb Sn Ge", "Cl Br I"),
        ("Cs", "Ca Cd Sr", "Cl"),
        ("Cl Br", "O", "Li Na"),
    )
    for a in a_sites.split()
    for b in b_sites.split()
    for x in x_sites.split()
)
# X-Y-Z of half-Heusler XYZ: X and Z form rocksalt, Y fills half of its cubes
HALF_HEUSLER = tuple(
    "Zr-Ni-Sn Hf-Ni-Sn Ti-Ni-Sn Ti-Co-Sb Zr-Co-Sb Hf-Co-Sb Nb-Fe-Sb V-Fe-Sb Ta-Fe-Sb Nb-Co-Sn "
    "Sc-Ni-Sb Y-Ni-Sb Sc-Pd-Sb Y-Pt-Sb Al-Li-Si Al-Li-Ge Mg-Li-N Mg-Li-P Zn-Li-As Mn-Cu-Sb".split()
)
# Chemically alike: in variants of AFLOW's prototypes one element becomes its neighbour in such a row.
ALIKE = tuple(
    tuple(row.split())
    for row in (
        "Li Na K Rb Cs",
        "Mg Ca Sr Ba",
        "Sc Y Lu",
        "Ti Zr Hf",
        "V Nb Ta",
        "Cr Mo W",
        "Mn Tc Re",
        "Fe Ru Os",
        "Co Rh Ir",
        "Ni Pd Pt",
        "Cu Ag Au",
        "Zn Cd Hg",
        "Al Ga In Tl",
        "Si Ge Sn Pb",
        "P As Sb Bi",
        "S Se Te",
        "F Cl Br I",
    )
)
