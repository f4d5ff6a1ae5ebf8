"""What a Pod of deploy/kubernetes mounts, laid out below a folder of a test."""

from pathlib import Path
from typing import Any

__all__ = ["laid_out"]


def laid_out(folder: Path, pod: dict[str, Any], settings: str, studies: dict[str, str]) -> Path:
    """The settings as they are, with what the Pod mounts somewhere else; the file they are in."""
    mounted = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    mounted.remove("/tmp")  # noqa: S108 - no setting names it
    for path in mounted:
        (folder / path[1:]).mkdir(parents=True, exist_ok=True)
        settings = settings.replace(f'"{path}', f'"{folder}{path}')
        settings = settings.replace(f"={path}", f"={folder}{path}")
    for name, text in studies.items():
        (folder / "etc/tunerd/studies" / name).write_text(text)
    (folder / "etc/tunerd/postgres/password").write_text("x\n")
    for name in ("kafka-ca/ca.crt", "kafka-user/user.crt", "kafka-user/user.key"):
        (folder / "etc/tunerd" / name).write_text("")
    file = folder / "tunerd.toml"
    file.write_text(settings)
    return file
