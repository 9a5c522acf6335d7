"""
A real Kubernetes control plane on this machine, for people (`kubenexus dev`) and for tests.

    versions, manifest, toolchain, build, binaries   where the programs come from
    certificates, rbac, flags, plane                 etcd, kube-apiserver and their peers
    nodes, stack                                     fake nodes; the webhook and the scheduler
    state, supervisor, cli                           what a person types and what stays running

It is no way to run a production cluster: one etcd member, one API server, nodes that are fake.
"""
