"""
AdmissionReview: bytes to values and back.

    codec  AdmissionReview bytes <-> values
    patch  JSON Patch builder, copy on write
    shape  structural check of the object
"""
