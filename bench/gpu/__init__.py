"""What there is to see on a GPU in ten minutes: that the stages are still exact there, and how fast they are."""
