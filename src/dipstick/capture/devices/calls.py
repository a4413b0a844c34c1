"""Calls of a driver's binding that may fail: a failure is a missing value and a count, never an exception."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from dipstick.capture.devices import Health

NO_SUCH_FUNCTION: Final = "the installed binding has no such function"


class Calls:
    """Calls by name, with a memory of what will never work.

    Args:
        binding: The module (``pynvml``, ``amdsmi``).
        health: Gets the counts.
        never: Error codes after which a function is not tried again on that GPU (not supported, no permission).
        nothing: Error codes that mean "no data now" and are no failure.
        code_of: Attribute of the binding's exceptions that holds the code.
    """

    def __init__(
        self, binding: Any, health: Health, *, never: Collection[int], nothing: Collection[int], code_of: str
    ) -> None:
        self.binding = binding
        self._health = health
        self._never = never
        self._nothing = nothing
        self._code_of = code_of

    def get(self, gpu: int, function: str, *arguments: Any) -> Any:
        """What the function returns, or None."""
        if (gpu, function) in self._health.refused:
            return None
        try:
            return getattr(self.binding, function)(*arguments)
        except AttributeError:
            self._refuse(gpu, function, NO_SUCH_FUNCTION)
        except Exception as error:  # noqa: BLE001 - NVML and amdsmi have a class per code, without a common name
            self._note(gpu, function, error)
        return None

    def _note(self, gpu: int, function: str, error: Exception) -> None:
        code = getattr(error, self._code_of, None)
        if code in self._never:
            self._refuse(gpu, function, str(error) or type(error).__name__)
        elif code not in self._nothing:
            self._health.failed[function] += 1

    def _refuse(self, gpu: int, function: str, why: str) -> None:
        self._health.refused[gpu, function] = why
