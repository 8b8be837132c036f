"""Files of probes: ``--probes FILE``, in TOML, or the name of a set that hpcd brings.

::

    group = "probe"                   # or "mpi", "memory": the calls' group in tables
    library = "libpthread*"           # default for functions without a library
    [types]                           # type names and their definitions
    omp_lock_t = "void *"
    [[probe]]
    function = "pthread_mutex_lock(void *mutex) -> int"
    library = ["libc", "libpthread"]  # one library, or several candidates
    units = { size = "bytes" }
    one_in = 1
    returns = "auto"
    attach = "all"                    # or "each": to each target apart
    optional = false                  # true: no message if the library lacks it
    [[probe]]
    usdt = "PROVIDER:NAME(u64 size)"
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from hpcd.daemon.probes import SETS, set_names
from hpcd.daemon.probes.probe_spec import (
    GROUPS,
    RETURNS,
    ProbeSpec,
    declared_values,
    split_spec,
    tracepoint_values,
)
from hpcd.errors import NotFoundError, UsageError, did_you_mean

_MOST_BYTES = 1 << 20
MOST_PROBES = 2048
_KEYS = ("group", "library", "attach", "returns", "optional", "types", "probe")
_PROBE_KEYS = (
    "function", "usdt", "library", "units", "one_in", "returns", "group", "attach", "optional",
)  # fmt: skip


def read_probes(name: str) -> str:
    """The text of the file or set ``name``.

    Raises :class:`NotFoundError`, and :class:`UsageError` for a file that is no text.
    """
    path = Path(name)
    if "/" not in name and not path.suffix and (SETS / f"{name}.toml").is_file():
        path = SETS / f"{name}.toml"
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        names = ", ".join(set_names())
        raise NotFoundError(f"{name}: {error.strerror}; sets of probes are {names}") from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{name}: larger than {_MOST_BYTES >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: {error}") from None


def parse_probes(name: str, text: str) -> list[ProbeSpec]:
    """The probes that ``text`` declares, the contents of a file called ``name``.

    Raises :class:`UsageError` in one line that says where.
    """
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{name}: {error}") from None
    return _probes(name, content)


def _probes(name: str, content: dict[str, object]) -> list[ProbeSpec]:
    _require_keys(name, content, _KEYS)
    entries = content.get("probe", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{name}: probes are written [[probe]]")
    if not entries:
        raise UsageError(f"{name}: no [[probe]] in it")
    types = content.get("types", {})
    if not isinstance(types, dict) or not all(isinstance(text, str) for text in types.values()):
        raise UsageError(f"{name}: [types] are names and texts")
    keys = ("group", "library", "attach", "returns", "optional")
    defaults = {key: content[key] for key in keys if key in content}
    specs: list[ProbeSpec] = []
    for number, entry in enumerate(entries, 1):
        try:
            specs += _specs_of({**defaults, **entry}, types)
        except UsageError as error:
            what = entry.get("function", entry.get("usdt", ""))
            raise UsageError(f"{name}: probe {number} ({str(what)[:80]!r}): {error}") from None
    if len(specs) > MOST_PROBES:
        raise UsageError(f"{name}: more than {MOST_PROBES} probes")
    return specs


def _specs_of(entry: dict[str, object], types: dict[str, str]) -> list[ProbeSpec]:
    _require_keys("", entry, _PROBE_KEYS)
    text, tracepoint = entry.get("function"), entry.get("usdt")
    if (text is None) == (tracepoint is None) or not isinstance(text or tracepoint, str):
        raise UsageError("has either function or usdt, a text")
    libraries = entry.get("library")
    libraries = [libraries] if isinstance(libraries, str) else libraries
    if not isinstance(libraries, list) or not libraries or not all(
        isinstance(library, str) and library for library in libraries
    ):  # fmt: skip
        raise UsageError("has no library")
    group, returns, one_in = (
        entry.get("group", "probe"), entry.get("returns", "auto"), entry.get("one_in", 1)
    )  # fmt: skip
    if group not in GROUPS:
        raise UsageError(f"group is one of {', '.join(GROUPS)}")
    if returns not in RETURNS:
        raise UsageError(f"returns is one of {', '.join(RETURNS)}")
    if not isinstance(one_in, int) or not 1 <= one_in <= 1_000_000:
        raise UsageError("one_in is a number from 1 to 1,000,000")
    if entry.get("attach", "all") not in ("all", "each"):
        raise UsageError('attach is "all" or "each"')
    units = entry.get("units", {})
    if not isinstance(units, dict) or not all(isinstance(unit, str) for unit in units.values()):
        raise UsageError("units are names of values and texts")
    head, parameters, returned = split_spec(str(text or tracepoint))
    provider = ""
    if tracepoint is not None:
        provider, colon, head = head.partition(":")
        if not colon or not head:
            raise UsageError("usdt is written PROVIDER:NAME(TYPE NAME, ...)")
        values = tracepoint_values(parameters or "")
    else:
        values = declared_values(
            "" if parameters == "..." else parameters or "", returned, types, units
        )
    return [
        ProbeSpec(
            f"{library}:{text or tracepoint}", library, head, values, group, provider,
            parameters == "...", returns, one_in,
            entry.get("attach") == "each",
            bool(entry.get("optional")) or len(libraries) > 1,
        )
        for library in libraries
    ]  # fmt: skip


def _require_keys(name: str, table: dict[str, object], keys: tuple[str, ...]) -> None:
    for key in table:
        if key not in keys:
            where = f"{name}: " if name else ""
            raise UsageError(f"{where}unknown key {key}{did_you_mean(key, keys, 1)}")
