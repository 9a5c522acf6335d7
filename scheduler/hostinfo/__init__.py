"""
Facts about hosts, and their sources, best first:

    ResourceSlices          DRA drivers publish their devices
    NodeResourceTopology    an exporter beside the kubelet publishes NUMA nodes
    Node                    annotation and labels, see `policies.hosts.node_object`

    inventory               facts of the first two sources by node, merged into the Node
    node_resource_topology  NodeResourceTopology objects as host facts
    provenance              the source of each fact, and contradictions between sources
    resource_slices         ResourceSlices as host facts

Each source has a small pure reader from its object to `policies.hosts.merge.HostFacts`.
"""
