"""Addresses in a load module by which a language's runtime is recognised; read by the decoder."""

from __future__ import annotations

from hpcd.elf.elf_view import ElfView

PYTHON_RUNTIME = "_PyRuntime"
PYTHON_LOOP = "_PyEval_EvalFrameDefault"
PYTHON_LOOP_END = f"end of {PYTHON_LOOP}"
JVM_STRUCTS, JVM_TYPES = "gHotSpotVMStructs", "gHotSpotVMTypes"
RUNTIME_SYMBOLS = (
    PYTHON_RUNTIME, "Py_Version", PYTHON_LOOP, "PyCode_Type", PYTHON_LOOP_END,
    JVM_STRUCTS, JVM_TYPES,
)  # fmt: skip
"""Names that are looked for; tables kept on disk have them by their places here."""
# Linkers keep its name where the symbol was stripped.
_PYTHON_SECTION = ".PyRuntime"


def runtime_symbols(elf: ElfView) -> dict[str, int]:
    """Return the addresses of :data:`RUNTIME_SYMBOLS` by name, as far as ``elf`` has them; none of
    a module without a runtime."""
    tables = (".dynsym", ".symtab")
    symbols = elf.symbols_called(RUNTIME_SYMBOLS, tables, objects=True)
    addresses = {name: address for name, address, _ in reversed(symbols)}
    for name, address, size in symbols:
        if name == PYTHON_LOOP and addresses[name] == address:
            addresses[PYTHON_LOOP_END] = address + size
    section = elf.sections.get(_PYTHON_SECTION)
    if section and section.address:
        addresses.setdefault(PYTHON_RUNTIME, section.address)
    return addresses if PYTHON_RUNTIME in addresses or JVM_STRUCTS in addresses else {}
