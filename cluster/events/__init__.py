"""
Events: written at a bounded pace, repeats folded into series.

    correlator  aggregate repeats into series (client-go's word)
    recorder    write Events, bounded and paced
"""
