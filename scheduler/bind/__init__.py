"""
From a plan to Bindings.

    binder         POST Binding, retry, read back
    binding_cycle  assume, PreBind, bind, confirm or forget
    prebind        volumes, devices and reservations before the bind
"""
