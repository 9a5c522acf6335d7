"""
Run a program that dies with its parent: `die_with_parent.py PARENT_PID PROGRAM [ARGUMENT…]`.

The kernel kills this process when the thread that forked it ends for any reason; the request
survives the exec of the program. It is an exec wrapper, because `preexec_fn` is not safe in a
parent with threads. It is started by path with `-I -S`, so it imports the standard library only.
Linux only: elsewhere the program may outlive its parent.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    parent, program = int(argv[0]), argv[1:]
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # The parent may have ended before the request; then no signal comes.
    if os.getppid() != parent:
        sys.exit(1)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
