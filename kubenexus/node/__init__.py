"""
`kubenexus node describe NODE`: a host's inside, where each fact comes from, and who holds what.

    gather    the node's objects, from the API server
    view      what they say together, as the scheduler reads it
    render    the same as lines for people

Nothing is judged here: topology and books are made by the scheduler's own code.
"""
