"""
`kubenexus audit`: find existing objects that admission would not admit today.

    cli           options -> run
    kinds         which kinds the API server serves of those that policies cover
    scan          list every object of them, page by page
    kueue_queues  the Kueue queue of each workload
    validate      one object under the policies in force, with the webhook's own code; pure
    report        violations and totals as text and as JSON lines; pure

It finds objects that were created while the webhook was off, before a policy existed, or under an
exception that has expired. It changes nothing and writes no Events.
"""
