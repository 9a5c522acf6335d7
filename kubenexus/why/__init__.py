"""
`kubenexus why pod/x`: why a pod waits, asked of the scheduler itself.

    ask       finds the scheduler and fetches its answer (`/explain`)
    render    the answer as a page for people

Nothing is judged here: what is printed is what the scheduler sees and tried.
"""
