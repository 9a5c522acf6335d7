"""
The functions that policies may call in CEL, one family per module.

    format    format functions
    ip_cidr   ip and cidr functions
    lists     list and regex functions
    overload  a CEL function as data
    pod       requests(), limits(), gpus(), containers()
    quantity  quantity functions
    semver    semver functions
    strings   string functions
    url       url functions
"""
