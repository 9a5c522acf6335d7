"""
`kubenexus dev`: a real Kubernetes control plane on this machine, for people and for tests.

    cli         options -> run
    lifecycle   start, inspect and stop a plane
    supervisor  the process that owns a plane
    state       what is known of a running plane, on disk
    stack       the webhook and the scheduler on a plane
    plane       etcd, kube-apiserver, kube-controller-manager, kwok
    process     child processes that end with their parent
    binaries    where the programs come from
    api         a small blocking client
    paths       the cache and the state, in XDG folders
    errors      the error tree

The programs are built from Go modules, for machines that cannot download binaries. It is no
production cluster: one etcd member, one API server, fake nodes.
"""
