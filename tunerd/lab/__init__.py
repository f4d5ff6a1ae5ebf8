"""The workbench beside the daemon: tables, import, evaluation, simulation, the demo.

A running daemon never imports it; the import contract holds that.
"""
