"""Kafka as a stream, through kafka-python 3. Importing this package does not import Kafka."""
