"""Makes the wheel of the whole tree for pip (PEP 517): scikit-build-core builds librill, and the
libraries that it needs go in beside it, with their licences, as auditwheel does it.

They get names of their own (librill_ucp.so.0), and so do UCX's functions (rill_wheel_ucp_init): a
process may have another UCX, such as that of Open MPI. The loader takes two libraries of one name
for one, and the first function of a name that all see for everybody's. UCX loads its modules from
the folder "ucx" beside itself, which auditwheel does not know of.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Iterable, Optional

from rill_build import build_editable  # noqa: F401
from scikit_build_core import build as scikit
from scikit_build_core.build import (  # noqa: F401
    build_sdist,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

# Every Linux that a wheel is for has these.
SYSTEM = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))\.so(\.\d+)*")
MODULES = ("uct_cma",)  # UCX's; TCP and plain shared memory need none
LICENCES = Path("/usr/share/common-licenses")


class Unfit(Exception):
    """Why the libraries can't go in."""


def _out(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise Unfit(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        raise Unfit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _needs(library: Path) -> dict[str, Path]:
    """Paths of all that the loader brings for it, but what every system has."""
    found = {}
    for line in _out("ldd", str(library)).splitlines():
        name, _, path = line.strip().partition(" => ")
        if path and not SYSTEM.fullmatch(name) and not name.startswith("librill."):
            if path.startswith("not found"):
                raise Unfit(f"{name} was not found")
            found[name] = Path(path.split(" (")[0])
    return found


def _licence(library: Path) -> dict[str, str]:
    """Texts by name, of the Debian package that the library is from."""
    path = str(library.resolve())
    try:
        package = _out("dpkg-query", "--search", path).split(":")[0]
    except Unfit:  # known by its path before /lib became a link to /usr/lib
        package = _out("dpkg-query", "--search", path.replace("/usr", "", 1)).split(":")[0]
    text = Path("/usr/share/doc", package, "copyright")
    if not text.exists():
        raise Unfit(f"{text}, the licence of {library.name}, is not there")
    texts = {f"{package}.txt": text.read_text()}
    for name in re.findall(rf"{LICENCES}/([\w.-]*\w)", texts[f"{package}.txt"]):
        if name == "LGPL" and "v2.1" in texts[f"{package}.txt"]:  # the name is the newest one's
            name = "LGPL-2.1"
        texts[f"{name}.txt"] = (LICENCES / name).read_text()
    return texts


def _renamed(name: str) -> str:
    return f"librill_{name[3:]}"


def _new_symbols(libraries: Iterable[Path]) -> str:
    """For patchelf: a line "old new" for each function and variable that UCX shows."""
    names = set()
    for library in libraries:
        for line in _out("nm", "--dynamic", "--defined-only", str(library)).splitlines():
            name = line.split()[-1]
            # The last is looked up by its name, in the module alone.
            if "uc" in name and name != "ucs_module_global_init":
                names.add(name)
    return "".join(f"{name} rill_wheel_{name}\n" for name in sorted(names))


def _without_system_modules(library: Path, original: Path) -> None:
    """UCX also looks for modules where it was installed. Those would bring that UCX along."""
    folder = f"{original.resolve().parent}/ucx\0".encode()
    data = library.read_bytes()
    if folder not in data:
        raise Unfit(f"{original} does not name its folder of modules, {folder[:-1].decode()}")
    # Its last part is also the name of the folder beside the library: strings share their ends.
    nowhere = b"/none".ljust(len(folder) - len(b"/ucx\0"), b"/") + b"/ucx\0"
    library.write_bytes(data.replace(folder, nowhere))


def _graft(package: Path, licences: Path) -> None:
    """Puts what the package's libraries need beside them."""
    patchelf = shutil.which("patchelf")
    if patchelf is None:
        raise Unfit("patchelf is not installed")
    own = sorted(package.glob("*.so"))
    needs = {name: path for library in own for name, path in _needs(library).items()}
    copies = {path: package / _renamed(name) for name, path in needs.items()}
    for name, path in needs.items():
        if re.fullmatch(r"libucs\.so\.\d+", name):
            for module in MODULES:
                source = path.resolve().parent / "ucx" / name.replace("libucs", f"lib{module}")
                if source.exists():
                    copies[source] = package / "ucx" / source.name
    texts: dict[str, str] = {}
    for source in copies:
        texts.update(_licence(source))
    for source, copy in copies.items():
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, copy)
        if copy.parent == package:
            if re.match(r"libucs\.so", source.name):
                _without_system_modules(copy, source)
            _out(patchelf, "--set-soname", copy.name, str(copy))
    symbols = licences.parent / "symbols"
    ucx = [copy for source, copy in copies.items() if source.name.startswith("libuc")]
    symbols.write_text(_new_symbols(ucx))
    for library in [*own, *copies.values()]:
        origin = "$ORIGIN" if library.parent == package else "$ORIGIN/.."
        renames = []
        for name in _out(patchelf, "--print-needed", str(library)).split():
            if name in needs:
                renames += ["--replace-needed", name, _renamed(name)]
        _out(patchelf, *renames, "--set-rpath", origin, str(library))
        if library in ucx or library.name == "librill.so":
            _out(patchelf, "--rename-dynamic-symbols", str(symbols), str(library))
    symbols.unlink()
    licences.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (licences / name).write_text(text)


def _platform(libraries: Iterable[Path]) -> str:
    """The oldest glibc whose symbols they need, as a tag (PEP 600)."""
    versions = [(2, 17)]
    for library in libraries:
        text = _out("readelf", "--wide", "--version-info", str(library))
        versions += [(int(a), int(b)) for a, b in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", text)]
    major, minor = max(versions)
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def _write(folder: Path, wheel: Path) -> None:
    """The files of a folder as a wheel, with a new RECORD."""
    (info,) = folder.glob("*.dist-info")
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            name = path.relative_to(folder).as_posix()
            if name == f"{info.name}/RECORD":
                continue
            data = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.writerow([name, f"sha256={digest}", len(data)])
            member = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            member.external_attr = (0o755 if ".so" in path.name else 0o644) << 16
            archive.writestr(member, data, zipfile.ZIP_DEFLATED)
        rows.writerow([f"{info.name}/RECORD", "", ""])
        member = zipfile.ZipInfo(f"{info.name}/RECORD", (2020, 1, 1, 0, 0, 0))
        member.external_attr = 0o644 << 16
        archive.writestr(member, record.getvalue(), zipfile.ZIP_DEFLATED)


def repair(wheel: Path, folder: Path) -> str:
    """Writes it to the folder with its libraries inside, and gives its new name; Unfit if these
    can't go in."""
    with tempfile.TemporaryDirectory() as scratch:
        content = Path(scratch)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(content)
        (info,) = content.glob("*.dist-info")
        _graft(content / "rill", info / "licenses")
        tag = _platform(path for path in content.rglob("*.so*"))
        about = info / "WHEEL"
        about.write_text(re.sub(r"(?m)^(Tag: py3-none-).*$", rf"\g<1>{tag}", about.read_text()))
        name = f"{'-'.join(wheel.stem.split('-')[:2])}-py3-none-{tag}.whl"
        _write(content, folder / name)
    return name


def build_wheel(
    wheel_directory: str,
    config_settings: Optional[dict[str, str]] = None,
    metadata_directory: Optional[str] = None,
) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch, scikit.build_wheel(scratch, config_settings, metadata_directory))
        try:
            return repair(plain, Path(wheel_directory))
        except Unfit as error:
            # It works here, with this machine's UCX, and its tag says that it is for here.
            print(f"rill: the wheel is for this machine only: {error}", file=sys.stderr)
            shutil.copyfile(plain, Path(wheel_directory, plain.name))
            return plain.name
