"""
`kubenexus node describe NODE`: a host's NUMA nodes and GPUs, the source of each fact, and usage.

    cli       options -> run
    fetch     the objects about the node, from the API server
    describe  topology and usage, with the scheduler's own code
    render    the same as text
"""
