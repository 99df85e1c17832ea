"""Avro values with the header of Confluent in front."""
