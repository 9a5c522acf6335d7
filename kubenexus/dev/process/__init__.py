"""
Child processes that end with their parent.

    child            one child process
    die_with_parent  PR_SET_PDEATHSIG wrapper
    ports            free ports
    self_exec        environment to start KubeNexus itself
"""
