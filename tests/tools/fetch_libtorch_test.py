"""Runs tools/fetch_libtorch.py against a package index of its own on this machine: a small wheel, and connections that break."""

import contextlib
import hashlib
import http.server
import importlib.util
import io
import os
import sys
import tempfile
import threading
import unittest
import zipfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "fetch_libtorch.py"
MEMBERS = {
    "torch/include/ATen/ATen.h": b"// header\n",
    "torch/version.py": b"__version__ = '2.15.0'\n",
    "torch/lib/libtorch_cpu.so": os.urandom(3_000_000),
    "torch/lib/libtorch_cuda.so": b"not wanted",
    "torch-2.15.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.15.0\n",
    "torch-2.15.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: cp312-cp312-manylinux_2_28_x86_64\n",
    "torch-2.15.0.dist-info/RECORD": b"",
}
WHEEL_NAME = "torch-2.15.0-cp312-cp312-manylinux_2_28_x86_64.whl"


def make_wheel() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, contents in MEMBERS.items():
            archive.writestr(name, contents)
    return out.getvalue()


class Index(http.server.ThreadingHTTPServer):
    """Serves one wheel; `breaks` holds after how many bytes each next answer ends too early."""

    def __init__(self, wheel: bytes):
        super().__init__(("127.0.0.1", 0), Handler)
        self.wheel, self.breaks, self.starts = wheel, [], []
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/simple/torch/":
            self.answer(200, f'<a href="/files/{WHEEL_NAME}">{WHEEL_NAME}</a>'.encode(), "text/html")
        elif self.path == f"/files/{WHEEL_NAME}":
            asked = self.headers.get("Range")
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
            self.server.starts.append(start)
            length = self.server.breaks.pop(0) if self.server.breaks else None
            self.answer(206 if asked else 200, self.server.wheel[start:], "application/octet-stream", length)
        else:
            self.send_error(404)

    def answer(self, status, body, kind, length=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:length])
        if length is not None:
            self.close_connection = True

    def log_message(self, *_):
        pass


class FetchTest(unittest.TestCase):
    def setUp(self):
        spec = importlib.util.spec_from_file_location("fetch_libtorch", SCRIPT)
        self.script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.script)
        self.wheel = make_wheel()
        self.index = Index(self.wheel)
        self.addCleanup(self.index.server_close)
        self.addCleanup(self.index.shutdown)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = Path(folder.name) / "cache"
        self.script.FREE_BYTES = 1
        self.script.time.sleep = lambda _: None
        self.pin(hashlib.sha256(self.wheel).hexdigest())
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PIP_") and "proxy" not in key.lower()}
        environment |= {"KULLBACK_CACHE": str(self.cache), "PIP_INDEX_URL": f"{self.index.address}/simple", "PIP_CONFIG_FILE": os.devnull}
        saved = dict(os.environ)
        os.environ.clear()
        os.environ.update(environment)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(saved)))

    def pin(self, sha256: str):
        members = ("torch/include/", "torch/version.py", "torch/lib/libtorch_cpu.so")
        self.script.WHEELS = {"x86_64": (self.script.Wheel("torch", "2.15.0", sha256, members),)}

    def fetch(self) -> tuple[Path, str]:
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            folder = self.script.fetch("x86_64")
        return folder, said.getvalue()

    def refusal(self) -> str:
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as stopped:
            self.script.fetch("x86_64")
        self.assertEqual(stopped.exception.code, 2)
        return said.getvalue()

    def assert_starts(self, *breaks: int):
        """The wheel was asked for from its beginning, then from each break on, less what pip had not passed on yet."""
        self.assertEqual(len(self.index.starts), 1 + len(breaks))
        self.assertEqual(self.index.starts[0], 0)
        for number, (start, end) in enumerate(zip(self.index.starts[1:], breaks), 1):
            self.assertTrue(end - number * self.script.BLOCK <= start <= end, f"went on from {start} after a break at {end}")

    def test_unpacks_what_is_wanted_and_nothing_else(self):
        folder, _ = self.fetch()
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        self.assertEqual(files, {"torch/include/ATen/ATen.h", "torch/version.py", "torch/lib/libtorch_cpu.so"})
        self.assertEqual((folder / "torch/lib/libtorch_cpu.so").read_bytes(), MEMBERS["torch/lib/libtorch_cpu.so"])
        self.assertEqual(list((self.cache / "downloads").glob("torch*")), [])

    def test_asks_nobody_when_it_is_there(self):
        self.fetch()
        self.index.starts.clear()
        self.fetch()
        self.assertEqual(self.index.starts, [])

    def test_goes_on_where_a_connection_broke(self):
        self.index.breaks = [1_000_000, 500_000]
        self.fetch()
        self.assert_starts(1_000_000, 1_500_000)

    def test_goes_on_in_a_later_run(self):
        self.script.ATTEMPTS = 1
        self.index.breaks = [2_000_000]
        self.assertIn("goes on from there", self.refusal())
        self.assertFalse((self.cache / "libtorch-2.15.0-x86_64").exists())
        self.fetch()
        self.assert_starts(2_000_000)

    def test_begins_anew_when_what_it_had_is_spoilt(self):
        downloads = self.cache / "downloads"
        downloads.mkdir(parents=True)
        (downloads / "torch-2.15.0-x86_64.part").write_bytes(b"x" * 1000)
        _, said = self.fetch()
        self.assertEqual(self.index.starts, [1000, 0])
        self.assertIn("the checksum is wrong", said)

    def test_refuses_another_wheel_than_the_pinned_one(self):
        self.pin("0" * 64)
        self.refusal()
        self.assertFalse((self.cache / "libtorch-2.15.0-x86_64").exists())

    def test_asks_pip_itself_where_its_session_is_not_to_be_had(self):
        def unknown_pip(*_):
            raise ImportError("another pip")

        self.script.open_with_pip = unknown_pip
        folder, _ = self.fetch()
        self.assertEqual((folder / "torch/lib/libtorch_cpu.so").read_bytes(), MEMBERS["torch/lib/libtorch_cpu.so"])

    def test_says_when_the_index_is_not_there(self):
        os.environ["PIP_INDEX_URL"] = "http://127.0.0.1:9/simple"
        os.environ["PIP_RETRIES"] = "0"
        self.assertIn("is the network there?", self.refusal())

    def test_says_when_the_disk_is_full(self):
        self.script.FREE_BYTES = 1 << 60
        self.assertIn("the disk is full", self.refusal())


if __name__ == "__main__":
    if importlib.util.find_spec("pip") is None:
        sys.exit(77)  # skipped: there is no pip to test with
    unittest.main()
