"""Asking a schema registry for the schemas that payloads name, once for each id.

``registry_client`` asks; ``known_schemas`` knows what the home keeps of the answers,
and reads a pipeline's contracts from it.
"""
