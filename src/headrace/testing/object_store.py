"""A real object store for tests: the S3 gateway ``versitygw`` over a folder, which honours ``If-None-Match: *``."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.errors import TargetError
from headrace.store import Bucket, ObjectPath
from headrace.testing.ports import free_port

__all__ = ["BUCKET", "ObjectServer", "server_program"]

BUCKET = "lake"
"""The bucket that every server has."""
_KEY, _SECRET = "headrace-test", "swordfish-of-the-store"
_START_S = 30.0
_STOP_S = 10.0


def server_program() -> str | None:
    """Return where the server's program is: beside this Python, where the set-up puts it, or on the path."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which("versitygw", path=beside)


class ObjectServer:
    """A server process and the folder that it serves; both go at the end of a ``with`` block."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-s3-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    def bucket(
        self,
        endpoint: str | None = None,
        *,
        name: str = BUCKET,
        secret: str = _SECRET,
        timeout_s: float = 30.0,
        retries: int = 5,
    ) -> Bucket:
        """Return how to get at the bucket.

        Args:
            endpoint: of what stands before the server, the server itself by default.
            name: of another bucket.
            secret: another one than the server's.
            timeout_s: longest time of a request.
            retries: times that one is sent again.
        """
        return Bucket(
            name,
            endpoint or self.endpoint,
            "us-east-1",
            _KEY,
            secret,
            timeout_s=timeout_s,
            retries=retries,
        )

    def folder_of(self, place: ObjectPath) -> Path:
        """Return where the server keeps what lies below a prefix, under the same names."""
        return self.folder / "served" / BUCKET / place.key

    def place(self, prefix: str) -> ObjectPath:
        """Return a prefix of the bucket."""
        return ObjectPath(self.bucket(), prefix)

    def __enter__(self) -> Self:
        program = server_program()
        assert program is not None, "versitygw is not installed"
        served, extra = self.folder / "served", self.folder / "metadata"
        for folder in (served / BUCKET, extra):
            folder.mkdir(parents=True)
        given = ["--port", f"127.0.0.1:{self.port}", "--keep-alive", "--quiet"]
        self._process = subprocess.Popen(
            # Not every file system has the attributes that it would keep beside its files otherwise.
            [program, *given, "posix", "--sidecar", str(extra), str(served)],
            env={**os.environ, "ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STOP_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait(self) -> None:
        assert self._process is not None
        end = time.monotonic() + _START_S
        while time.monotonic() < end and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise TargetError("versitygw does not start.", next_step="start it by hand to see why.")
