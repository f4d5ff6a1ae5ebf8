"""Predictions that can be trusted, and decisions that follow from them.

Revision ID: 0003
"""

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what each room keeps."""
