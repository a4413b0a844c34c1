"""Types of what is handed over, as far as the text of the code tells: a small lattice and its tables.

Known types come from Python, ASE, NumPy, PyTorch, vLLM and the pool libraries; a class of the checkout
holds tensors if one of its fields does. Unknown stays unknown: "no tensors" is only said of payloads
whose every part is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dipstick.verdicts.repo_model import UNKNOWN

if TYPE_CHECKING:
    from dipstick.verdicts.repo_scope import Scope


@dataclass(frozen=True, slots=True)
class Ty:
    """A type.

    Attributes:
        name: Qualified name (``str``, ``list``, ``ase.Atoms``, ``torch.Tensor``, ``reward.Task``).
        args: Types of the parts: elements of a container (a tuple's in order; key and value of a dict;
            the choices of a ``union``).
        device: ``cuda`` where the code says so.
        scope: The class, if it is the checkout's own.
    """

    name: str
    args: tuple[Ty, ...] = ()
    device: str = ""
    scope: Scope | None = None

    def __str__(self) -> str:
        """As an annotation would have it: ``list[ase.Atoms]``, ``torch.Tensor (cuda)``."""
        if self.name == "union":
            return " | ".join(dict.fromkeys(str(part) for part in self.args))
        inner = f"[{', '.join(str(part) for part in self.args)}]" if self.args else ""
        return f"{self.name}{inner}" + (f" ({self.device})" if self.device else "")


ANY: Final = Ty(UNKNOWN)
NEVER: Final = Ty("never")
"""An expression that is being inferred already; it adds nothing to a union."""
STR: Final = Ty("str")
INT: Final = Ty("int")
FLOAT: Final = Ty("float")
BOOL: Final = Ty("bool")
BYTES: Final = Ty("bytes")
NONE: Final = Ty("None")
TENSOR: Final = Ty("torch.Tensor")
CUDA: Final = Ty("torch.Tensor", device="cuda")
ATOMS: Final = Ty("ase.Atoms")
ARRAY: Final = Ty("numpy.ndarray")
TEXT: Final = Ty("text")
"""What TRL hands to a reward function for each completion: a string, or a list of chat messages."""

CONTAINERS: Final = frozenset({"list", "tuple", "dict", "set", "frozenset", "iterator", "union"})
NO_TENSORS: Final = frozenset(
    {
        "str", "int", "float", "bool", "bytes", "bytearray", "complex", "None", "text", "range", "function", "type",
        "ase.Atoms", "numpy.ndarray", "pathlib.Path", "datetime.datetime", "decimal.Decimal",
        "pymatgen.core.Structure", "xml.etree.ElementTree.Element",
    }
)  # fmt: skip

SAME_AS: Final[dict[str, str]] = {
    "ase.atoms.Atoms": "ase.Atoms",
    "torch.FloatTensor": "torch.Tensor",
    "torch.LongTensor": "torch.Tensor",
    "torch.cuda.FloatTensor": "torch.Tensor",
    "numpy.array": "numpy.ndarray",
    "numpy.typing.NDArray": "numpy.ndarray",
    "numpy.typing.ArrayLike": "numpy.ndarray",
    "concurrent.futures.process.ProcessPoolExecutor": "concurrent.futures.ProcessPoolExecutor",
    "concurrent.futures.thread.ThreadPoolExecutor": "concurrent.futures.ThreadPoolExecutor",
    "concurrent.futures._base.Executor": "concurrent.futures.Executor",
    "multiprocessing.pool.Pool": "multiprocessing.Pool",
    "multiprocessing.dummy.Pool": "multiprocessing.pool.ThreadPool",
    "loky.get_reusable_executor": "loky.ProcessPoolExecutor",
    "joblib.externals.loky.get_reusable_executor": "loky.ProcessPoolExecutor",
    "pebble.pool.ProcessPool": "pebble.ProcessPool",
    "pebble.pool.ThreadPool": "pebble.ThreadPool",
    "joblib.parallel.Parallel": "joblib.Parallel",
    "accelerate.accelerator.Accelerator": "accelerate.Accelerator",
    "vllm.entrypoints.llm.LLM": "vllm.LLM",
    "xml.etree.ElementTree.fromstring": "xml.etree.ElementTree.Element",
    "xml.etree.ElementTree.XML": "xml.etree.ElementTree.Element",
}
"""Other names of the same thing. Functions that make an object stand for its type."""

MULTIPROCESSING: Final = ("torch.multiprocessing", "multiprocess", "billiard", "multiprocessing.context")
"""Packages with the interface of ``multiprocessing``."""

GENERIC: Final[dict[str, str]] = {
    "list": "list", "List": "list", "Sequence": "list", "Iterable": "list", "Collection": "list",
    "MutableSequence": "list", "Iterator": "iterator", "Generator": "iterator", "tuple": "tuple",
    "Tuple": "tuple", "dict": "dict", "Dict": "dict", "Mapping": "dict", "MutableMapping": "dict",
    "set": "set", "Set": "set", "frozenset": "set", "FrozenSet": "set",
}  # fmt: skip
"""Last part of a container annotation and the container it stands for."""

MAKERS: Final[dict[str, Ty]] = {
    "str": STR, "repr": STR, "format": STR, "int": INT, "len": INT, "round": FLOAT, "float": FLOAT, "bool": BOOL,
    "isinstance": BOOL, "bytes": BYTES, "range": Ty("list", (INT,)), "input": STR,
    "json.dumps": STR, "pickle.dumps": BYTES, "os.getenv": STR, "os.getpid": INT,
    "time.time": FLOAT, "time.perf_counter": FLOAT, "time.monotonic": FLOAT, "random.random": FLOAT,
    "ase.io.read": ATOMS, "ase.build.bulk": ATOMS, "ase.build.molecule": ATOMS, "ase.build.make_supercell": ATOMS,
    "ase.spacegroup.crystal": ATOMS,
    "re.findall": Ty("list", (STR,)), "re.sub": STR,
}  # fmt: skip
"""What known functions return."""

TENSOR_MAKERS: Final = frozenset(
    {
        "torch.tensor", "torch.as_tensor", "torch.from_numpy", "torch.zeros", "torch.ones", "torch.empty",
        "torch.full", "torch.rand", "torch.randn", "torch.randint", "torch.arange", "torch.linspace", "torch.eye",
        "torch.stack", "torch.cat", "torch.concat", "torch.where", "torch.einsum", "torch.matmul",
        "torch.zeros_like", "torch.ones_like", "torch.empty_like", "torch.full_like", "torch.rand_like",
        "torch.randn_like",
    }
)  # fmt: skip

STR_METHODS: Final[dict[str, Ty]] = {
    **dict.fromkeys(["strip", "lower", "upper", "replace", "removeprefix", "removesuffix", "format", "join", "lstrip", "rstrip", "title"], STR),
    **dict.fromkeys(["split", "splitlines", "rsplit"], Ty("list", (STR,))),
    **dict.fromkeys(["startswith", "endswith", "isdigit"], BOOL),
    **dict.fromkeys(["find", "index", "count"], INT),
    "encode": BYTES,
}  # fmt: skip

METHODS: Final[dict[tuple[str, str], Ty]] = {
    **{("str", name): result for name, result in STR_METHODS.items()},
    **{("text", name): result for name, result in STR_METHODS.items()},
    ("bytes", "decode"): STR,
    ("ase.Atoms", "copy"): ATOMS, ("ase.Atoms", "repeat"): ATOMS,
    ("ase.Atoms", "get_positions"): ARRAY, ("ase.Atoms", "get_scaled_positions"): ARRAY,
    ("ase.Atoms", "get_atomic_numbers"): ARRAY, ("ase.Atoms", "get_forces"): ARRAY, ("ase.Atoms", "get_cell"): ARRAY,
    ("ase.Atoms", "get_chemical_symbols"): Ty("list", (STR,)), ("ase.Atoms", "get_chemical_formula"): STR,
    ("ase.Atoms", "get_potential_energy"): FLOAT, ("ase.Atoms", "get_volume"): FLOAT,
    ("numpy.ndarray", "tolist"): Ty("list", (FLOAT,)), ("numpy.ndarray", "item"): FLOAT,
    ("numpy.ndarray", "copy"): ARRAY, ("numpy.ndarray", "astype"): ARRAY, ("numpy.ndarray", "tobytes"): BYTES,
    ("torch.Tensor", "numpy"): ARRAY, ("torch.Tensor", "tolist"): Ty("list", (FLOAT,)),
    ("torch.Tensor", "item"): FLOAT, ("torch.Tensor", "cpu"): TENSOR, ("torch.Tensor", "cuda"): CUDA,
    ("torch.Tensor", "size"): Ty("tuple", (INT,)), ("torch.Tensor", "dim"): INT,
    ("vllm.LLM", "generate"): Ty("list", (Ty("vllm.RequestOutput"),)),
    ("vllm.LLM", "chat"): Ty("list", (Ty("vllm.RequestOutput"),)),
    ("multiprocessing.Context", "Pool"): Ty("multiprocessing.Pool"),
    ("multiprocessing.Context", "Process"): Ty("multiprocessing.Process"),
    **{
        (owner, name): Ty(f"multiprocessing.{name}")
        for owner in ("multiprocessing.Context", "multiprocessing.Manager")
        for name in ["Barrier", "Lock", "RLock", "Event", "Condition", "Semaphore", "BoundedSemaphore", "Queue", "JoinableQueue", "SimpleQueue"]
    },
}  # fmt: skip
"""What known methods return, by the receiver's type."""

ATTRIBUTES: Final[dict[tuple[str, str], Ty]] = {
    ("vllm.RequestOutput", "outputs"): Ty("list", (Ty("vllm.CompletionOutput"),)),
    ("vllm.RequestOutput", "prompt"): STR,
    ("vllm.CompletionOutput", "text"): STR,
    ("vllm.CompletionOutput", "token_ids"): Ty("list", (INT,)),
    ("ase.Atoms", "positions"): ARRAY, ("ase.Atoms", "numbers"): ARRAY, ("ase.Atoms", "cell"): ARRAY,
    ("ase.Atoms", "symbols"): STR, ("torch.Tensor", "shape"): Ty("tuple", (INT,)), ("numpy.ndarray", "shape"): Ty("tuple", (INT,)),
    ("xml.etree.ElementTree.Element", "text"): STR, ("xml.etree.ElementTree.Element", "tag"): STR,
}  # fmt: skip
"""What known attributes are."""


def canonical(name: str) -> str:
    """One name for things with several (``torch.multiprocessing.Pool`` is ``multiprocessing.Pool``)."""
    for package in MULTIPROCESSING:
        if name.startswith(package + "."):
            name = "multiprocessing." + name[len(package) + 1 :]
    if name == "multiprocessing.get_context":
        return "multiprocessing.Context"
    return SAME_AS.get(name, name)


def union(types: list[Ty]) -> Ty:
    """One type for several possible ones; ``None`` beside another is left out."""
    flat = [part for ty in types for part in (ty.args if ty.name == "union" else (ty,))]
    flat = [ty for ty in dict.fromkeys(flat) if ty != NEVER]
    kept = [ty for ty in flat if ty != NONE] or flat
    if not kept:
        return ANY
    return kept[0] if len(kept) == 1 else Ty("union", tuple(kept))


def element(ty: Ty) -> Ty:
    """What looping over, or indexing, a value gives."""
    if ty.name == "union":
        return union([element(part) for part in ty.args])
    if ty.name in {"str", "text"}:
        return ty
    if ty.name == "dict":
        return ty.args[0] if ty.args else ANY
    if ty.name in {"torch.Tensor", "numpy.ndarray"}:
        return replace(ty, args=())
    return union(list(ty.args)) if ty.name in CONTAINERS and ty.args else ANY


def item(ty: Ty, index: int) -> Ty:
    """One position of an unpacked value."""
    if ty.name == "tuple" and index < len(ty.args):
        return ty.args[index]
    return element(ty)
