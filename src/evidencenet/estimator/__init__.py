"""The trained `EvidenceNetwork` and what it says: log K, its error, novelty, answers, validation, files.

It must not know figures or pages.
"""
