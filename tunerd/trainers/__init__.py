"""What a training says of itself: how fast it was, with which configuration, and how it ended.

:mod:`.job` is one training (``tunerd.client.job`` opens it): :mod:`.speed` turns steps into a
speed, :mod:`.destination` says where events go, :mod:`.outcome` how an exception is told. The
adapters of frameworks call the same job: :mod:`.huggingface`, :mod:`.lightning`, :mod:`.ray`.
:mod:`.logs` reads the logs of trainings that nobody can change.

Two rules hold for all of it. Nothing raises into a training, and no step waits. So every public
method catches what goes wrong in it and logs that once. Disk and network belong to a thread.

A training's image seldom has tunerd's libraries: ``pip install --no-deps tunerd`` must do. So these
modules need the standard library, kafka-python where they talk to Kafka, and the framework that an
adapter is for.
"""
