"""A real Apache Kafka, one node that is broker and controller, from its Maven artifacts.

``python -m tests.servers.kafka`` starts one, prints its address and stops it on Ctrl-C or SIGTERM.
"""

import argparse
import base64
import fcntl
import functools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.servers import (
    MissingServerError,
    cache_folder,
    end,
    free_ports,
    tied,
    wait_until,
)

__all__ = ["KafkaServer", "kafka_cluster"]

VERSION = "4.3.0"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tunerd</groupId><artifactId>kafka-for-tests</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
START_TIMEOUT_S = 60.0
JAVA = ["-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class KafkaServer:
    """One broker on free ports of 127.0.0.1. Its data survives ``stop`` and ``kill``.

    ``listeners`` are more of them, by name, with the security protocol of each; ``addresses`` then
    says where they are. ``properties`` are added to server.properties and win over what is there.
    """

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._listeners = dict(listeners or {})
        self.port, self.controller_port, *more = free_ports(2 + len(self._listeners))
        self.addresses = {
            name: f"127.0.0.1:{port}" for name, port in zip(self._listeners, more, strict=True)
        }
        self.log = folder / "broker.log"
        self.cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        self._properties = {**self._defaults(), **(properties or {})}
        self._dump: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Address for clients, ``127.0.0.1:port``; the same after every restart."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start and wait until the broker takes requests (about 2 s, the first time 3 s).

        Raises MissingServerError without Java, or without Maven and a network the first time.
        The broker dies with the thread that calls this.
        """
        self.spawn()
        self.wait()

    def spawn(self) -> None:
        """Start, and do not wait."""
        self._spawn(_jars())

    def _spawn(self, jars: Path) -> None:
        java = ["java", *JAVA, *_shared_classes(jars)]
        classes = ["-cp", f"{jars}/*"]
        config = self.folder / "server.properties"
        if not config.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            config.write_text("".join(f"{k}={v}\n" for k, v in self._properties.items()))
            # In one word: an id may begin with a minus sign.
            tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}"]
            tool += ["-c", str(config)]
            _check([*java, *classes, *tool])
        self._log_offset = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*tied(), *java, *self._dump, *classes, "kafka.Kafka", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Wait until the broker takes requests."""
        wait_until(
            lambda: self._started(self._log_offset), START_TIMEOUT_S, f"Kafka starts ({self.log})"
        )

    @property
    def is_up(self) -> bool:
        """Whether it runs and takes requests. Raises RuntimeError where it ended by itself."""
        return self._process is not None and self._started(self._log_offset)

    def set(self, properties: Mapping[str, str]) -> None:
        """Set properties, before the first start."""
        self._properties |= properties

    def stop(self) -> None:
        """Stop in good order (SIGTERM, about 2 s)."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop the process without ending it: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after ``freeze``."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Start again at the same address, on the same data, after ``stop`` or ``kill``."""
        self.stop()
        self.start()

    def _defaults(self) -> dict[str, str]:
        outside = f"PLAINTEXT://{self.bootstrap}" + "".join(
            f",{name}://{address}" for name, address in self.addresses.items()
        )
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", **self._listeners}
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"{outside},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": outside,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            # Kafka's default: nothing of ours may rely on a topic's staying away.
            "auto.create.topics.enable": "true",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            # Without these a killed broker needs 11 s to come back, not 3: the controller still
            # believes in the one that it lost.
            "broker.session.timeout.ms": "1500",
            "broker.heartbeat.interval.ms": "300",
        }

    def _started(self, offset: int) -> bool:
        assert self._process is not None
        with self.log.open("rb") as log:
            log.seek(offset)
            said = log.read()
        if self._process.poll() is not None:
            raise RuntimeError(f"Kafka ended while starting:\n{said[-2000:].decode()}")
        return b"Kafka Server started" in said

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def _end(self, number: int) -> None:
        if self._process is not None:
            end(self._process, number)
            self._process = None


def kafka_cluster(folder: Path, count: int) -> list[KafkaServer]:
    """Start so many brokers that are controllers too; each record has as many copies as there are,
    and is acknowledged by two of them."""
    servers = [KafkaServer(folder / f"broker-{number}") for number in range(1, count + 1)]
    voters = ",".join(
        f"{number}@127.0.0.1:{server.controller_port}" for number, server in enumerate(servers, 1)
    )
    for number, server in enumerate(servers, 1):
        server.cluster_id = servers[0].cluster_id
        copies = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        server.set(
            {
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "default.replication.factor": str(count),
                "min.insync.replicas": "2",
                **{f"{topic}.replication.factor": str(count) for topic in copies},
                "transaction.state.log.min.isr": "2",
                "share.coordinator.state.topic.min.isr": "2",
            }
        )
    for server in servers:
        server.spawn()  # none is ready before a majority is there
    for server in servers:
        server.wait()
    return servers


@functools.cache
def _jars() -> Path:
    """Return the folder with the broker's jars; the first time Maven fetches them (44 MB)."""
    if shutil.which("java") is None:
        raise MissingServerError("no `java` on the PATH; install Java 17 or newer")
    jars = cache_folder() / f"kafka-{VERSION}"
    with (cache_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be first
        if not jars.exists():
            _fetch(jars)
        if not _shared_classes(jars):
            _share_classes(jars)
    return jars


def _fetch(jars: Path) -> None:
    if shutil.which("mvn") is None:
        raise MissingServerError("no `mvn` on the PATH to fetch Apache Kafka; install Maven")
    with tempfile.TemporaryDirectory(dir=cache_folder()) as work:
        fetched = Path(work) / "jars"
        (Path(work) / "pom.xml").write_text(POM)
        options = ["-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", *options]
        try:
            _check(command, cwd=work)
        except RuntimeError as error:
            raise MissingServerError(f"Maven could not fetch Apache Kafka: {error}") from error
        fetched.rename(jars)


def _archive(jars: Path) -> Path:
    return jars.with_name(f"{jars.name}.jsa")


def _shared_classes(jars: Path) -> list[str]:
    """Options by which Java takes the broker's classes as it left them parsed: a start costs
    1.7 s of a processor instead of 3.0. Another version of Java passes the file over."""
    archive = _archive(jars)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []


def _share_classes(jars: Path) -> None:
    """Start a broker once, to write the file of its classes when it ends."""
    with tempfile.TemporaryDirectory(dir=cache_folder()) as work:
        server, made = KafkaServer(Path(work) / "broker"), Path(work) / "classes.jsa"
        server._dump = [f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable"]
        server._spawn(jars)
        server.wait()
        process = server._process
        assert process is not None
        server.stop()
        if process.returncode == 128 + signal.SIGTERM and made.exists():  # not cut short
            made.rename(_archive(jars))


def _check(command: list[str], cwd: str | None = None) -> None:
    done = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stdout[-1000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Run one Apache Kafka broker until interrupted.")
    parser.add_argument("--folder", type=Path, help="keep its data here (default: a new one)")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory(prefix="tunerd-kafka-") as temporary:
        server = KafkaServer(folder or Path(temporary))
        server.start()
        print(server.bootstrap, flush=True)
        try:
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        finally:
            server.stop()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
