"""
The `kubenexus` command.

    cli          root command: webhook, scheduler, and the commands below
    simulate     admit and place manifests without a cluster
    policy       lint, test, explain, measure and export policies
    audit        find objects that admission would not admit today
    why          why a pod is pending
    node         NUMA nodes, GPUs and usage of a node
    labeler      publish a host's NUMA nodes and GPUs on its Node object
    install      hooks of the chart: certificates, registration, probe, cleanup
    dev          a local control plane with fake nodes
    clusterfile  cluster.yaml: a cluster described in one file
    reference    the reference pages of docs/
    generate     write every generated file
    rbac         rules of the components, roles of the chart
    pki          CA and leaf certificates
    json_logs    JSON log lines
    output       the option --output
    exit_codes   end a command with one line and a code
"""
