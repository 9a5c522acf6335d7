"""
The bottom of the house: the words, what a pod asks for, policy documents and their evaluation.

Imports nothing of the other packages, talks to nobody, and has no clock of its own.
"""
