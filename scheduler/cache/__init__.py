"""
Pods on nodes, assumed or bound, and the snapshot that planning works on.

    cache              assumed and bound pods; no tenancy objects inside
    comparer           recount the cache from the pods (kube: comparer.go)
    reserved_capacity  capacity charged for a unit that is not bound yet
    snapshot           free capacity, trial placement with undo
"""
