"""Everything behind `bench/run`. Standard library only."""
