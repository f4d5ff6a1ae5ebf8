"""Optimizers that tunerd is measured beside. All get the same start and the same batches."""
