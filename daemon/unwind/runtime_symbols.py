"""Addresses in a load module by which a language's runtime is recognised; read by the decoder."""

from __future__ import annotations

from hpcd.elf.elf_view import ElfView

PYTHON_RUNTIME = "_PyRuntime"
RUNTIME_SYMBOLS = (PYTHON_RUNTIME, "Py_Version", "_PyEval_EvalFrameDefault", "PyCode_Type")
"""Names that are looked for; tables kept on disk have them by their places here."""
# Linkers keep its name where the symbol was stripped.
_PYTHON_SECTION = ".PyRuntime"


def runtime_symbols(elf: ElfView) -> dict[str, int]:
    """Return the addresses of :data:`RUNTIME_SYMBOLS` by name, as far as ``elf`` has them; none of
    a module without a runtime."""
    tables = (".dynsym", ".symtab")
    symbols = elf.symbols_called(RUNTIME_SYMBOLS, tables, objects=True)
    addresses = {name: address for name, address, _ in reversed(symbols)}
    section = elf.sections.get(_PYTHON_SECTION)
    if section and section.address:
        addresses.setdefault(PYTHON_RUNTIME, section.address)
    return addresses if PYTHON_RUNTIME in addresses else {}
