"""
The control plane's binaries, built once from Go modules and cached.

    locate          find control-plane binaries
    build           build into the cache
    cache_manifest  what the cache holds
    go              two calls of Go
    progress        build progress
    toolchain       which Go
    versions        pinned programs
"""
