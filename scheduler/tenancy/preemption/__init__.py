"""
Preemption: candidates, minimal victim sets, eviction.

    attempt          one preemption in progress
    candidates       who may be preempted, as bundles (takes overruns.py); bundles of overdue backfi
    controller       preemption state machine
    evaluator        find victims for a unit (kube: Evaluator)
    executor         dry run, nominate, evict (kube: executor.go); clear nominations
    guarantees       victims that leave guarantees intact
    nominating       ?
    overruns         ?
    pdb              PodDisruptionBudgets
    preemptor_quota  quota reserved for preemptors whose victims terminate
    rate_limit       how often victims are searched
    victims          minimal victim set on trials
"""
