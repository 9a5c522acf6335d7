"""
Where the facts about hosts come from, best first:

    slices        DRA ResourceSlices: what drivers say of their devices
    topologies    NodeResourceTopology objects: what an exporter beside the kubelet says
    the node      annotation and labels of the Node object, see `policies.hosts.node_object`

    hosts         the books of the first two, and a node made whole by them
    provenance    which source each fact came from, and which of them disagree

Each source is a small pure reader from its object to a `policies.hosts.merge.Said`.
"""
