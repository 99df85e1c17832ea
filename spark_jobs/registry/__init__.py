"""What a pipeline knows of its schema registry: ``known_schemas``.

It asks by ``sinks.registry_client``, once for each id, knows what the home keeps of the
answers, and reads a pipeline's contracts from it. No value is read here: see
``schemas.registered_contract``.
"""
