"""Sending old jobs the way that live ones come: ``tunerd import``.

``spool`` keeps the jobs of the tables in the order in which they are sent, and how far an import
is; ``reading`` fills it, ``sending`` empties it onto the jobs topic, ``settling`` waits until all
is learned, with the help of a daemon of its own (``stand_in``) where none runs.
"""
