"""
A control plane of local processes: etcd, kube-apiserver, kube-controller-manager, kwok.

    control_plane  etcd, apiserver, controller-manager, kwok
    fake_nodes     kwok nodes
    flags          command lines of the control plane
    key_files      keys and kubeconfigs on disk
    kubeconfig     render a kubeconfig
"""
