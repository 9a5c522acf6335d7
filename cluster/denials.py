"""
Telling a refusal of the pod from one of this program.

A policy that forbids a pod its bind, and an API server that does not let the scheduler bind at all,
both answer 403. The second kind is no property of the pod: an API server that has just started says
so until it has read its roles, for seconds, to everybody. It is tried again like a lost answer.
"""

import re
from typing import Final

from cluster import errors

_NO_RIGHT: Final = re.compile(r"is forbidden: User \"[^\"]*\" cannot \w+ resource ")
_ABOUT_THE_OBJECT: Final = frozenset({400, 403, 422})


def of_this_program(error: errors.KubeError) -> bool:
    """The caller is not let in, whatever it asks for."""
    if not isinstance(error, errors.Refused):
        return False
    return error.status == 401 or _NO_RIGHT.search(str(error)) is not None


def of_the_pod(error: errors.KubeError) -> bool:
    """The API server, or a policy on it, will keep refusing this very object."""
    return error.status in _ABOUT_THE_OBJECT and not of_this_program(error)
