"""The daemon: one process that runs the stages, one that tunes, health and systemd."""
