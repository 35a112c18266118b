"""A control wavelet has in its payload eight commands for routers and one control task id for a compute element.

A control wavelet is read by every router on its way (command 0) and, where it is delivered, by the CE (task id).  The
commands sit in groups of three bits, two for the command and one that says "do not deliver to the CE here":

==========================  =======================================================================================
bits                        meaning
==========================  =======================================================================================
16 .. 21                    control task id; 31 = none
22, 23 and 24               command 0 and its do-not-deliver bit
25, 26 and 27               command 1
28, 29 and 0                command 2 (the sequence wraps to the low end)
3k - 8, 3k - 7 and 3k - 6   command k = 3 .. 7
30, 31                      not touched by routers
==========================  =======================================================================================

A router whose pop mode says so moves command k + 1 to place k and fills place 7 with NOP + do-not-deliver.  The form
with a single command leaves bits 0 .. 15 to 16 bits of data; then only command 0 (and the high halves of 1 and 2) mean
anything, so routers on the way must not pop.

Timing: none; these are pure functions of 32-bit numbers.
Sources: arch §7 (bit arithmetic in vendor examples), docs/machine.md, "Commands".
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from wse_core.errors import ProgramError
from wse_core.image import CMD_ADV, CMD_NOP, CMD_RST, CMD_TEARDOWN, N_CONTROL_IDS, TASK_NULL

__all__ = ["ADVANCE", "COMMANDS", "N_COMMANDS", "Control", "decode", "encode", "pop", "single"]

COMMANDS = {"nop": CMD_NOP, "adv": CMD_ADV, "rst": CMD_RST, "teardown": CMD_TEARDOWN}
N_COMMANDS = 8
ADVANCE = 0x095F9249
"""Control wavelet that moves switches on: command 0 advances, nothing is delivered, no task."""

# (lowest bit of the command, bit of do-not-deliver) per place.
_PLACES = ((22, 24), (25, 27), (28, 0), *((3 * k - 8, 3 * k - 6) for k in range(3, N_COMMANDS)))
_NAMES = {value: name for name, value in COMMANDS.items()}


@dataclass(frozen=True)
class Control:
    """A `Control` is the decoded payload of a control wavelet.

    Attributes
    ----------
    commands : tuple[str, ...]
        Eight of ``nop``, ``adv``, ``rst``, ``teardown``; command k addresses the k-th router that pops.
    deliver : tuple[bool, ...]
        Per command whether that router may deliver the wavelet to its CE.
    task : int or None
        Control task id; None for 31, which no task has.
    data : int
        Bits 0 .. 15, meaningful in the form with a single command only.
    """

    commands: tuple[str, ...]
    deliver: tuple[bool, ...]
    task: int | None
    data: int


def encode(commands: str | Sequence[str] = (), task: int | None = None, deliver: bool | Sequence[bool] = True) -> int:
    """Return the payload of a control wavelet.

    Parameters
    ----------
    commands : sequence of str
        Up to eight of ``nop``, ``adv``, ``rst``, ``teardown``; the rest is NOP that is not delivered.
    task : int, optional
        Control task id, 0 .. 63 without 31; None = no task.
    deliver : bool or sequence of bool
        Whether the wavelet may reach the CE, for all commands or for each.

    Returns
    -------
    int
        32 bits.

    Raises
    ------
    ProgramError
        Unknown command, too many of them, or an id that no control task can have.

    Examples
    --------
    >>> hex(encode(["adv"], deliver=False))
    '0x95f9249'
    >>> decode(encode(["rst", "adv"], task=5)).commands[:3]
    ('rst', 'adv', 'nop')
    """
    commands = [commands] if isinstance(commands, str) else list(commands)
    if len(commands) > N_COMMANDS:
        raise ProgramError(f"a control wavelet carries {N_COMMANDS} commands, not {len(commands)}")
    flags = [bool(deliver)] * len(commands) if isinstance(deliver, (bool, int)) else [bool(item) for item in deliver]
    if len(flags) != len(commands):
        raise ProgramError(f"{len(commands)} commands but {len(flags)} deliver flags")
    if not commands and deliver is True:
        commands, flags = ["nop"], [True]  # a wavelet for the CE alone
    word = _task_bits(task)
    for k, (low, stop) in enumerate(_PLACES):
        name = commands[k] if k < len(commands) else "nop"
        word |= _command(name) << low
        if k >= len(commands) or not flags[k]:
            word |= 1 << stop
    return word


def single(command: str = "nop", task: int | None = None, data: int = 0, deliver: bool = True) -> int:
    """Return the payload with one command and 16 bits of data (the vendor's single-payload form).

    Parameters
    ----------
    command : str
        ``nop``, ``adv``, ``rst`` or ``teardown``.
    task : int, optional
        Control task id; None = no task.
    data : int
        Bits 0 .. 15, which the control task finds in R0.
    deliver : bool
        Whether the wavelet may reach the CE.

    Examples
    --------
    >>> decode(single("adv", task=7, data=0x1234)).data == 0x1234
    True
    """
    if not 0 <= data < 1 << 16:
        raise ProgramError(f"data {data} of a control wavelet does not fit 16 bits")
    return _task_bits(task) | _command(command) << 22 | (not deliver) << 24 | data


def decode(payload: int) -> Control:
    """Return the `Control` that a 32-bit payload means."""
    payload = int(payload) & 0xFFFFFFFF
    task = payload >> 16 & 63
    return Control(
        tuple(_NAMES[payload >> low & 3] for low, _ in _PLACES),
        tuple(not payload >> stop & 1 for _, stop in _PLACES),
        None if task == TASK_NULL else task,
        payload & 0xFFFF,
    )


def pop(payload: int) -> int:
    """Return `payload` after one router has removed command 0.

    Examples
    --------
    >>> hex(pop(0x09DF9249))
    '0x91f9249'
    """
    payload = int(payload) & 0xFFFFFFFF
    word = payload & (63 << 16 | 3 << 30)
    for (low, stop), (next_low, next_stop) in itertools.pairwise(_PLACES):
        word |= (payload >> next_low & 3) << low | (payload >> next_stop & 1) << stop
    return word | 1 << _PLACES[-1][1]


def _task_bits(task: int | None) -> int:
    if task is None:
        return TASK_NULL << 16
    if not 0 <= task < N_CONTROL_IDS or task == TASK_NULL:
        raise ProgramError(
            f"control task id {task} is outside 0 .. {N_CONTROL_IDS - 1} or is {TASK_NULL}, the id of none"
        )
    return task << 16


def _command(name: str) -> int:
    if name not in COMMANDS:
        raise ProgramError(f"unknown router command {name!r}", hint=f"one of {', '.join(COMMANDS)}; a task is task=40")
    return COMMANDS[name]
