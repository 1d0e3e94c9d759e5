"""Writing Python source. Must not know what it computes."""
