"""The range for a program without torch."""

from sitecustomize import _tell


def start() -> None:
    _tell("start")


def stop() -> None:
    _tell("stop")
