"""The errors that a user meets, each with the exit status that the command line returns for it.

A message is one sentence: what is wrong, in which file or key, and what to do.
"""


class GpuatlasError(Exception):
    """A step failed (exit status 1)."""

    exit_code = 1


class ConfigError(GpuatlasError):
    """The command line or the configuration is wrong (exit status 2)."""

    exit_code = 2


class InputRefused(GpuatlasError):
    """An input file is damaged, empty or of an unknown kind (exit status 3)."""

    exit_code = 3


class MachineRefused(GpuatlasError):
    """The machine cannot or must not do what was asked (exit status 4)."""

    exit_code = 4


class OtherLaunches(GpuatlasError):
    """Nsight Compute profiled other launches than those that were asked for, or none."""


class Interrupted(GpuatlasError):
    """The work was interrupted and its state saved: run the same command again (exit status 75)."""

    exit_code = 75
