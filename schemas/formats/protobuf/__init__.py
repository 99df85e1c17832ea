"""Messages of Protocol Buffers; ``protobuf_format`` is the format.

- ``proto_file``: compiles the file of a contract, and chooses the message.
- ``message_fields``: the fields of a message as columns.
- ``wire_walk``: checks the bytes of a message, and finds what is wrong in them.
- ``json_form``: values with parts as JSON.
- ``message_values``: values of columns, out of messages and into them.
- ``protobuf_codec``: the compiled form of a contract, for one message.
- ``protobuf_decoder``: a batch of payloads to columns.
- ``message_indexes``: which message of a file a schema registry's frame names.
- ``registered_proto``: reads a schema of a registry, with the files that it imports.
- ``message_compatibility``: whether one message type reads another's payloads rightly.
- ``framed_protobuf``: messages behind a registry's ids, as a format.
- ``protobuf_damages``: ways to break a payload.
"""
