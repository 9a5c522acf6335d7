"""
Preemption: candidates, minimal victim sets, eviction.

    candidates       which pods a preemptor may evict, as victim groups
    context          what preemption needs of the scheduler around it
    controller       preemption state machine
    evaluator        finds victims for a preemptor
    executor         dry run, nomination, eviction through the API server
    guarantees       victims that leave guarantees intact
    pdb              PodDisruptionBudgets
    preemptor_quota  quota reserved for preemptors until their victims have terminated
    rate_limit       how often victims are searched
    search           runs a search in the event loop or in a fork
    victims          minimal victim set on trials
"""
