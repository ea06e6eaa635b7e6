"""Makes the package for pip (PEP 517, PEP 660). The wheel carries librill.so: the one that
RILL_LIBRARY names, else that of the tree around this folder, which is built first. An sdist has no
tree: its wheel is Python only, and the library is looked for when it is imported.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Optional

HERE = Path(__file__).resolve().parents[1]
TREE = HERE.parent


def _settings() -> dict[str, dict[str, Any]]:
    """The tables of pyproject.toml. A string or a list of strings in one line is the same in TOML
    and in Python."""
    tables: dict[str, dict[str, Any]] = {}
    table: dict[str, Any] = {}
    for line in (HERE / "pyproject.toml").read_text().splitlines():
        if match := re.fullmatch(r"\[(.+)\]", line):
            table = tables.setdefault(match[1], {})
        elif match := re.fullmatch(r"([\w-]+) = (.+)", line):
            table[match[1]] = ast.literal_eval(match[2])
    return tables


SETTINGS = _settings()
PROJECT = SETTINGS["project"]
NAME = f"{PROJECT['name']}-{PROJECT['version']}"


def _metadata() -> str:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {PROJECT['name']}",
        f"Version: {PROJECT['version']}",
        f"Summary: {PROJECT['description']}",
        f"Requires-Python: {PROJECT['requires-python']}",
    ]
    lines += [f"Classifier: {one}" for one in PROJECT["classifiers"]]
    lines += [f"Requires-Dist: {one}" for one in PROJECT["dependencies"]]
    for extra, needs in SETTINGS["project.optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {one}; extra == "{extra}"' for one in needs]
    return "\n".join(lines) + "\n"


def _build_tree() -> None:
    """Builds librill.so, librill_train.so, and librill_cuda.so where there is nvcc, in build/ of
    the tree; a folder that is configured, such as for another MPI, stays so."""
    cmake = os.environ.get("CMAKE", "cmake")
    if not (TREE / "build" / "CMakeCache.txt").exists():
        _run(["scripts/configure", "build"])
    known = _run([cmake, "--build", "build", "--target", "help"])
    targets = ["rill"]
    targets += [name for name in ("rill_cuda", "rill_train") if re.search(rf"\b{name}\b", known)]
    for target in targets:
        parallel = ["--parallel", str(os.cpu_count() or 1)]
        _run([cmake, "--build", "build", "--target", target, *parallel])


def _run(command: list[str]) -> str:
    """In the tree; what it printed."""
    try:
        done = subprocess.run(
            command, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode == 0:
            return done.stdout
        print(done.stdout, file=sys.stderr)
    except OSError as error:
        print(error, file=sys.stderr)
    raise SystemExit(
        f"{' '.join(command)} failed in {TREE}, so that there is no librill.so for the package. "
        "scripts/setup python installs what is missing (Debian, Ubuntu)."
    )


def _library() -> Optional[Path]:
    given = os.environ.get("RILL_LIBRARY")
    if given:
        if not Path(given).is_file():
            raise SystemExit(f"RILL_LIBRARY={given}: there is no such file")
        return Path(given)
    if not (TREE / "scripts" / "configure").exists():
        return None
    _build_tree()
    return TREE / "build" / "lib" / "librill.so"


def _tag(library: Optional[Path]) -> str:
    if library is None:
        return "py3-none-any"
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def _write_wheel(folder: str, tag: str, files: dict[str, bytes]) -> str:
    info = f"{NAME}.dist-info"
    files[f"{info}/METADATA"] = _metadata().encode()
    pure = "true" if tag.endswith("-any") else "false"
    files[
        f"{info}/WHEEL"
    ] = f"Wheel-Version: 1.0\nGenerator: rill_build\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = f"{NAME}-{tag}.whl"
    with zipfile.ZipFile(Path(folder) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            member = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            member.external_attr = (0o755 if ".so" in name else 0o644) << 16
            archive.writestr(member, data, zipfile.ZIP_DEFLATED)
    return wheel


def _sources() -> list[Path]:
    return sorted(
        path
        for path in (HERE / "rill").rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    )


def build_wheel(
    wheel_directory: str, config_settings: object = None, metadata_directory: Optional[str] = None
) -> str:
    files = {path.relative_to(HERE).as_posix(): path.read_bytes() for path in _sources()}
    library = _library()
    if library is not None:
        files["rill/librill.so"] = library.read_bytes()
        # For device memory, and for rill.sklearn, where they were built.
        for name in ("librill_cuda.so", "librill_train.so"):
            if (library.parent / name).exists():
                files[f"rill/{name}"] = (library.parent / name).read_bytes()
    return _write_wheel(wheel_directory, _tag(library), files)


def build_editable(
    wheel_directory: str, config_settings: object = None, metadata_directory: Optional[str] = None
) -> str:
    _library()  # of the tree, which the package in the tree finds by itself
    return _write_wheel(wheel_directory, "py3-none-any", {"rill.pth": f"{HERE}\n".encode()})


def build_sdist(sdist_directory: str, config_settings: object = None) -> str:
    files = {path.relative_to(HERE).as_posix(): path.read_bytes() for path in _sources()}
    for name in ("pyproject.toml", "tools/rill_build.py"):
        files[name] = (HERE / name).read_bytes()
    files["PKG-INFO"] = _metadata().encode()
    with tarfile.open(
        Path(sdist_directory) / f"{NAME}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT
    ) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{NAME}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return f"{NAME}.tar.gz"
