"""Predictors that tunerd's are measured beside. All see the columns that tunerd's see."""
