"""
Tells a denial of the object from a denial of this client.

A policy that forbids the bind of a pod, and an API server that forbids the scheduler to bind at
all, both answer 403. The second is no property of the pod: an API server that has just started
answers so for seconds, until it has read its roles. Callers retry it like a lost response.
"""

import re
from typing import Final

from cluster import errors

_NOT_ALLOWED: Final = re.compile(r"is forbidden: User \"[^\"]*\" cannot \w+ resource ")
_OBJECT_STATUSES: Final = frozenset({400, 403, 422})


def of_this_program(error: errors.KubeError) -> bool:
    """The server denies this client, for every object."""
    if not isinstance(error, errors.Refused):
        return False
    return error.status == 401 or _NOT_ALLOWED.search(str(error)) is not None


def of_the_pod(error: errors.KubeError) -> bool:
    """The API server, or a policy on it, will keep denying this object."""
    return error.status in _OBJECT_STATUSES and not of_this_program(error)
