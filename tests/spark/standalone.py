"""A standalone cluster of Spark on this machine: a master, two workers, and what a test starts on them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from headrace.spark.jars import delta_jars
from headrace.testing.ports import free_port
from tests.waiting import until

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
WORKERS = 2
SMALL = (
    *("--driver-memory", "512m", "--executor-memory", "512m"),
    *("--conf", "spark.driver.maxResultSize=1m"),
    *("--conf", "spark.ui.enabled=false"),
)
"""What a driver gets that could not hold the rows, and executors of a few hundred MiB."""


class Cluster:
    """Processes that end with the test; what they say is in files of a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.master = f"spark://127.0.0.1:{free_port()}"
        self._processes = ExitStack()
        self._ended: dict[str, Callable[[], int | None]] = {}
        # Executors have the packages of this environment, as those of a real cluster must.
        self.environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "512m",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path]),
        }

    def begin(self) -> None:
        """Start master and workers, and return when both are known to the master."""
        host, port = self.master.removeprefix("spark://").split(":")
        place = ("--host", host, "--port", port, "--webui-port", "0")
        self.start("master", ["spark-class", "org.apache.spark.deploy.master.Master", *place])
        self.await_line("master", "I have been elected leader")
        for number in range(WORKERS):
            name = f"worker{number}"
            size = ("--cores", "1", "--memory", "600m", "--work-dir", str(self.folder / name))
            own = ("--host", host, "--webui-port", "0", *size, self.master)
            self.start(name, ["spark-class", "org.apache.spark.deploy.worker.Worker", *own])
        for number in range(WORKERS):
            self.await_line(f"worker{number}", "Successfully registered with master")

    def serve(self) -> str:
        """Start a server of Spark Connect on the cluster, and return its URL."""
        port = free_port()
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        given = [part for pair in settings.items() for part in ("--conf", "=".join(pair))]
        self.start("connect", self.submit(*given, "--class", server, "spark-internal"))
        self.await_line("connect", "Spark Connect server started at")
        return f"sc://127.0.0.1:{port}"

    def submit(self, *arguments: str) -> list[str]:
        """Return the command that submits something to the cluster."""
        jars = ",".join(map(str, delta_jars()))
        return ["spark-submit", "--master", self.master, *SMALL, "--jars", jars, *arguments]

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a process of Spark's that runs until the test ends."""
        with (self.folder / f"{name}.log").open("wb") as said:
            process = subprocess.Popen(
                [str(HOME / "bin" / command[0]), *command[1:]],
                stdout=said,
                stderr=said,
                env=self.environment,
                cwd=self.folder,
            )
        self._ended[name] = process.poll
        self._processes.callback(process.wait, 60)
        self._processes.callback(process.terminate)

    def await_line(self, name: str, words: str) -> None:
        """Return when a process has said something."""
        path = self.folder / f"{name}.log"

        def said() -> bool:
            text = path.read_text(errors="replace")
            assert self._ended[name]() is None, text[-4000:]
            return words in text

        until(said, f"{name}: {words}", 240, 0.2)

    def run(self, command: Sequence[str]) -> str:
        """Run a program to its end, and return what it printed."""
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=1_200,
            check=False,
            env=self.environment,
            cwd=self.folder,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    def worked(self) -> list[int]:
        """Return how many executors each worker has begun."""
        folders = [self.folder / f"worker{number}" for number in range(WORKERS)]
        return [len(list(folder.glob("app-*/*"))) for folder in folders]

    def close(self) -> None:
        """End every process."""
        self._processes.close()


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Give a cluster while the block runs."""
    made = Cluster(folder)
    try:
        made.begin()
        yield made
    finally:
        made.close()
